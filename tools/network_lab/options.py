"""The command line of netlab."""
import argparse
import dataclasses
import re
import shlex

from network_lab import shape
from network_lab.failure import Failure
from rdma_vm.options import Format, between

USAGE = "tools/netlab [options] -- PROGRAM ARGS..."

HELP = """\
Makes a cluster on this machine, runs PROGRAM on it as the ranks of one job, and removes it again.

A host is a set of namespaces (network, uts, ipc, pid, mount): no process of it sees those of
another, nor their shared memory. Switches join the hosts. A link carries its rate in both
directions at once, and queues what comes faster. Files are those of this machine.

"""

EPILOG = """
The hosts are h0, h1, ...; their first adapters have the addresses 10.77.0.1, 10.77.0.2, ..., the
second 10.78.0.1, ... The launcher runs on a host of its own, "head", at no limited link; there
`ssh h1 COMMAND` runs COMMAND on h1, and `kill -9 $(cat $NETLAB_FOLDER/h1.pid)` ends h1. The switch's
end of h1's first adapter is the device h1.0 of head: `tc qdisc change dev h1.0 ...` changes a link.

PROGRAM finds NETLAB_HOSTS (h0:2,h1:2), NETLAB_FOLDER and NETLAB_SHAPE (a file) in the environment of
head; ranks get what the launcher gives them. ROPEWALK_NETWORK is that file, too, unless it is set.

Examples:
  tools/netlab --hosts 8 --rate 200mbit -- build/tools/ropewalk bench all_reduce --sizes 8:8M
  tools/netlab --hosts 4 --ranks-per-host 2 --racks 2 --uplink 100mbit -- ./train
  tools/netlab --hosts 4 --host 3:rate=50mbit --launcher mpirun.openmpi -- ./mpi_program
  tools/netlab --hosts 2 --launcher none -- sh -c 'ssh h0 hostname; ssh h1 ping -c 3 h0'
  tools/rdma-vm -- tools/netlab --hosts 2 --delay 20ms --loss 0.5% -- ./train

Needs root, or user namespaces; and iproute2. Delay, jitter, loss and reordering need netem in the
kernel, which the machine of tools/rdma-vm has.
Exit status: that of the launcher; 124: --timeout ran out; 125: the cluster could not be made; 2: wrong
command line.
"""

RATE_UNITS = {"kbit": 1e-3, "mbit": 1, "gbit": 1e3}
TIME_UNITS = {"us": 1e-3, "ms": 1, "s": 1e3}


@dataclasses.dataclass(frozen=True)
class Options:
    shape: shape.Shape
    launcher: list    # words; empty: the program runs on the head
    command: list
    timeout_s: float
    memory: str = None


def quantity(units, example):
    def read(word):
        parts = re.fullmatch(r"(\d+(?:\.\d+)?)([a-z%]+)", word)
        if not parts or parts[2] not in units:
            raise argparse.ArgumentTypeError(f"{word!r}: write a number and {' or '.join(units)}, "
                                             f"such as {example}")
        return float(parts[1]) * units[parts[2]]
    return read


rate = quantity(RATE_UNITS, "200mbit")
time = quantity(TIME_UNITS, "5ms")
percent = quantity({"%": 1}, "0.5%")
size = quantity({"kib": 1}, "8kib")
seconds = quantity({"s": 1, "m": 60, "h": 3600}, "90s")
# Option, field of a link, how it is read, what it is.
LINK_OPTIONS = (("rate", "rate_mbps", rate, "of every link, each way: 200mbit, 1gbit (default: no limit)"),
                ("buffer", "buffer_ms", time, "how long a packet may wait before it is dropped (default 50ms)"),
                ("bucket", "bucket_kib", size, "how much passes at once after a pause (default 32kib)"),
                ("delay", "delay_ms", time, "added on every link, each way"),
                ("jitter", "jitter_ms", time, "the delay varies by so much"),
                ("loss", "loss_percent", percent, "of the packets on every link, each way: 0.1%%"),
                ("reorder", "reorder_percent", percent, "of the packets overtake others; needs --delay"))


def change(word):
    """(host, {field: value}) of "3:rate=50mbit,buffer=5ms"."""
    host, colon, settings = word.partition(":")
    if not colon or not host.isdecimal():
        raise argparse.ArgumentTypeError(f"{word!r}: write a host's number and settings, 3:rate=50mbit")
    readers = {name: (field, read) for name, field, read, _ in LINK_OPTIONS}
    readers["ranks"] = ("ranks", between(1, 1024))
    fields = {}
    for setting in settings.split(","):
        name, _, value = setting.partition("=")
        if name not in readers:
            raise argparse.ArgumentTypeError(f"{word!r}: {name!r} is none of {', '.join(readers)}")
        field, read = readers[name]
        fields[field] = read(value)
    return int(host), fields


def parser():
    result = argparse.ArgumentParser(prog="netlab", usage=USAGE, description=HELP, epilog=EPILOG,
                                     allow_abbrev=False, formatter_class=Format)
    add = result.add_argument
    add("--hosts", type=between(1, shape.HOSTS_MAX), metavar="N", help="how many hosts (default 4)")
    add("--ranks-per-host", type=between(1, 1024), metavar="N", help="default 1")
    add("--nics", type=between(1, 8), metavar="N",
        help="adapters of each host, each on a network of its own (default 1)")
    add("--racks", type=between(1, 64), metavar="N",
        help="the hosts stand in so many racks (default 1), each with an uplink to a core switch")
    add("--uplink", type=rate, metavar="RATE", help="rate of the racks' uplinks (default: no limit)")
    for name, _, read, text in LINK_OPTIONS:
        add(f"--{name}", type=read, metavar=read_name(read), help=text)
    add("--host", type=change, action="append", default=[], metavar="K:rate=RATE",
        help="the links of host K differ; also buffer, bucket, delay, jitter, loss, reorder, and ranks, its number, "
             "with commas between")
    add("--shape", metavar="FILE", help="the network, as JSON (docs/network.md), instead of all these")
    add("--print-shape", action="store_true", help="print it as such a file, and make nothing")
    add("--launcher", type=shlex.split, metavar="WORDS",
        help="that of the job: 'ropewalk run -x NAME=value' (default: ropewalk run), 'mpirun.openmpi "
             "...', or none: PROGRAM runs once, on head")
    add("--timeout", type=seconds, default=600.0, metavar="TIME",
        help="of the whole run: 90s, 10m (default 10m)")
    add("--memory", metavar="FOLDER",
        help="an empty folder, which is one in memory, the same for all hosts, during the run")
    add("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return result


def read_name(read):
    return {rate: "RATE", time: "TIME", percent: "PERCENT", size: "SIZE"}[read]


def shape_of(given, complain):
    if given.shape:
        names = ("hosts", "ranks_per_host", "nics", "racks", "uplink", "host", *(name for name, *_ in LINK_OPTIONS))
        beside = ["--" + name.replace("_", "-") for name in names if getattr(given, name) not in (None, [])]
        if beside:
            complain(f"--shape says all of the network; leave {', '.join(beside)} out")
        return shape.read(given.shape)
    hosts, racks = given.hosts or 4, given.racks or 1
    if racks > hosts:
        complain(f"--racks {racks}: there are only {hosts} hosts")
    if given.uplink is not None and racks == 1:
        complain("--uplink needs --racks")
    if given.reorder and not given.delay:
        complain("--reorder needs --delay: a packet overtakes those that are delayed")
    changes = {}
    for host, fields in given.host:
        if host >= hosts:
            complain(f"--host {host}: the hosts are 0 to {hosts - 1}")
        changes.setdefault(host, {}).update(fields)
    fields = {field: getattr(given, name) for name, field, *_ in LINK_OPTIONS
              if getattr(given, name) is not None}
    link = shape.Link(between=(), **fields)
    uplink = dataclasses.replace(link, rate_mbps=given.uplink)
    return shape.regular(hosts, given.ranks_per_host or 1, racks, given.nics or 1, link, uplink, changes)


def parse(words):
    """Options; ends the program with status 2 where the words make no sense."""
    reader = parser()
    given = reader.parse_args(words)
    command = given.command[1:] if given.command[:1] == ["--"] else given.command
    try:
        made = shape_of(given, reader.error)
    except Failure as failure:
        reader.error(str(failure))
    if given.print_shape:
        print(made.as_json())
        reader.exit(0)
    if not command:
        reader.error("no program given; write tools/netlab -- PROGRAM ARGS...")
    launcher = ["ropewalk", "run"] if given.launcher is None else given.launcher
    return Options(made, [] if launcher == ["none"] else launcher, command, given.timeout,
                   given.memory)
