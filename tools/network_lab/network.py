"""Makes the switches, links and addresses of a shape, from head's network namespace: that of the
calling process.

A switch is a bridge, a link a pair of virtual Ethernet devices. At each end of a link a token bucket
(tbf) passes what leaves there at the link's rate, and netem delays, loses and reorders. What a bucket
holds passes faster than the link after a pause. Segments offloaded to the device have at most half of it,
and at most 16 KiB: smaller ones cost more of the processors.
"""
import subprocess

from network_lab.failure import Failure

SEGMENT_BYTES_MAX = 16 << 10
HEAD_ADDRESS = "255.254"  # on each network, beside 10.N


def address_of(network, host):
    """Of host number `host`, or of HEAD_ADDRESS, on network number `network`."""
    last = host if isinstance(host, str) else f"0.{host + 1}"
    return f"10.{77 + network}.{last}"


def call(*words):
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        command = " ".join(map(str, words))
        advice = "; the kernel has no netem: run netlab inside tools/rdma-vm" if "netem" in words else ""
        raise Failure(f"{command}: {done.stdout.strip() or done.returncode}{advice}")


def limit(link, device, inside=()):
    """What leaves `device`; `inside`: words that lead into its network namespace."""
    bucket_bytes = int(link.bucket_kib * 1024)
    segment_bytes = min(SEGMENT_BYTES_MAX, bucket_bytes // 2)
    call(*inside, "ip", "link", "set", device, "gso_max_size", segment_bytes, "gro_max_size", segment_bytes)
    parent = ["root"]
    if link.needs_netem:
        words = ["limit", 100_000]
        if link.delay_ms:
            words += ["delay", f"{link.delay_ms}ms"]
            words += [f"{link.jitter_ms}ms"] if link.jitter_ms else []
        for name, value in (("loss", link.loss_percent), ("reorder", link.reorder_percent)):
            words += [name, f"{value}%"] if value else []
        call(*inside, "tc", "qdisc", "add", "dev", device, *parent, "handle", "1:", "netem", *words)
        parent = ["parent", "1:1"]
    if link.rate_mbps:
        call(*inside, "tc", "qdisc", "add", "dev", device, *parent, "tbf", "rate",
             f"{link.rate_mbps * 1e6:.0f}bit", "burst", f"{bucket_bytes}b", "latency",
             f"{link.buffer_ms}ms")


def make_switch(name):
    call("ip", "link", "add", name, "type", "bridge", "forward_delay", 0, "mcast_snooping", 0)
    call("ip", "link", "set", name, "up")


def attach_host(link, host, pid, number, address):
    """Adapter `number` of the host whose process 1 is `pid`."""
    inside = ("nsenter", "--target", pid, "--net", "--")
    switch = next(end for end in link.between if end != host.name)
    port, adapter = f"{host.name}.{number}", f"eth{number}"
    call("ip", "link", "add", port, "type", "veth", "peer", "name", adapter, "netns", pid)
    call("ip", "link", "set", port, "master", switch, "up")
    call(*inside, "ip", "address", "add", f"{address}/16", "dev", adapter)
    call(*inside, "ip", "link", "set", adapter, "up")
    limit(link, port)
    limit(link, adapter, inside)


def join_switches(link, number):
    ends = [f"up{number}.{side}" for side in (0, 1)]
    call("ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
    for end, switch in zip(ends, link.between):
        call("ip", "link", "set", end, "master", switch, "up")
        limit(link, end)


def make(shape, pids):
    """`pids`: of each host's process 1. Gives each host's addresses, in the order of its adapters."""
    call("ip", "link", "set", "lo", "up")
    for switch in shape.switches:
        make_switch(switch)
    networks = shape.networks()
    for number, network in enumerate(networks):
        call("ip", "address", "add", f"{address_of(number, HEAD_ADDRESS)}/16", "dev",
             next(name for name in shape.switches if name in network))
    for number, link in enumerate(link for link in shape.links if set(link.between) <= set(shape.switches)):
        join_switches(link, number)
    addresses = {}
    for index, host in enumerate(shape.hosts):
        call("nsenter", "--target", pids[host.name], "--net", "--", "ip", "link", "set", "lo", "up")
        addresses[host.name] = []
        for number, link in enumerate(shape.adapters(host.name)):
            network = next(n for n, switches in enumerate(networks) if set(link.between) & switches)
            addresses[host.name].append(address_of(network, index))
            attach_host(link, host, pids[host.name], number, addresses[host.name][-1])
    return addresses
