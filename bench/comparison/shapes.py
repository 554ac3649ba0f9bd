"""Clusters of tools/netlab, and what a collective takes on them at least."""
import dataclasses
import math


@dataclasses.dataclass(frozen=True)
class Shape:
    name: str
    says: str
    hosts: int
    ranks_per_host: int = 1
    rate_mbps: int = 200  # of each adapter, each way
    adapters: int = 1
    uplink_mbps: int = 0  # the hosts stand in two racks, whose uplinks have this rate
    slow_mbps: int = 0  # the last host's rate
    fast_hosts: int = 0  # so many have links of twice the rate
    ranks_of: tuple = ()  # by host, where they differ
    buffer_ms: int = 50
    delay_ms: float = 0  # of each link: a path has two
    loss_percent: float = 0

    @property
    def ranks(self):
        return sum(self.ranks_of) or self.hosts * self.ranks_per_host

    @property
    def is_uniform(self):
        return not (self.uplink_mbps or self.slow_mbps or self.fast_hosts or self.ranks_of)

    def netlab_options(self):
        words = ["--hosts", self.hosts, "--ranks-per-host", self.ranks_per_host,
                 "--rate", f"{self.rate_mbps}mbit", "--buffer", f"{self.buffer_ms}ms",
                 "--nics", self.adapters]
        if self.uplink_mbps:
            words += ["--racks", 2, "--uplink", f"{self.uplink_mbps}mbit"]
        if self.slow_mbps:
            words += ["--host", f"{self.hosts - 1}:rate={self.slow_mbps}mbit"]
        for host in range(self.fast_hosts):
            words += ["--host", f"{host}:rate={2 * self.rate_mbps}mbit"]
        for host, ranks in enumerate(self.ranks_of):
            words += ["--host", f"{host}:ranks={ranks}"]
        if self.delay_ms:
            words += ["--delay", f"{self.delay_ms}ms"]
        if self.loss_percent:
            words += ["--loss", f"{self.loss_percent}%"]
        return [str(word) for word in words]

    def pair(self):
        """Two hosts with the same links."""
        return dataclasses.replace(self, hosts=2, ranks_per_host=1, uplink_mbps=0, slow_mbps=0,
                                   fast_hosts=0, ranks_of=())

    def host_rates_mbps(self):
        slow = [self.slow_mbps] if self.slow_mbps else []
        rate = self.rate_mbps * self.adapters
        return [2 * rate] * self.fast_hosts + [rate] * (self.hosts - self.fast_hosts - len(slow)) + slow

    def cuts(self):
        """(rate in Mbit/s, part of the hosts behind it) where the network can be cut in two."""
        yield from ((rate, 1 / self.hosts) for rate in self.host_rates_mbps())
        if self.uplink_mbps:
            yield self.uplink_mbps * self.adapters, 1 / 2

    def transfer_us(self, collective, size):
        """What the links take at least to carry it: all together, and each cut by itself."""
        hosts = self.hosts
        # In vectors: what all hosts send together. Below, what passes a cut in its busier direction.
        sent = (hosts - 1) * (2 if collective == "all_reduce" else 1)
        together_us = sent * size * 8 / sum(self.host_rates_mbps())
        whole = collective in ("all_reduce", "broadcast")
        return max(together_us, *(size * (1 if whole else max(part, 1 - part)) * 8 / rate
                                  for rate, part in self.cuts()))

    def bound_us(self, collective, size):
        return self.transfer_us(collective, size) + 2e3 * self.delay_ms

    def steps_us(self, one_way_us):
        """Of a short message: one after the other, as many as reach all hosts when each that was
        reached passes it on. Sending to many at once takes fewer."""
        return math.ceil(math.log2(self.hosts)) * one_way_us


def flat(hosts, ranks_per_host=1, **more):
    name = f"flat/{hosts}" if ranks_per_host == 1 else f"{hosts}x{ranks_per_host}"
    each = f", {ranks_per_host} ranks each" if ranks_per_host > 1 else ""
    return Shape(name, f"{hosts} hosts{each}", hosts, ranks_per_host, **more)


FLAT = tuple(flat(hosts) for hosts in (2, 4, 8, 16))
FLAT_4, FLAT_8 = FLAT[1:3]
TWO_RANKS = flat(4, 2)
SEVERAL_RANKS = (TWO_RANKS, flat(2, 4), flat(8, 2), flat(4, 4))
RACKS = Shape("racks/8", "2 racks of 4 hosts, uplinks of a quarter of their links", 8,
              uplink_mbps=200)
THIN_RACKS = Shape("thin-racks/8", "2 racks of 4 hosts, uplinks of a quarter of one of their links", 8,
                   uplink_mbps=50)
SLOW = Shape("slow/8", "8 hosts, one with a quarter of the rate", 8, slow_mbps=50)
ADAPTERS = Shape("adapters/4", "4 hosts with 2 adapters each", 4, adapters=2)
UNEQUAL = Shape("unequal/4", "4 hosts with 1, 2, 3 and 4 ranks", 4, ranks_of=(1, 2, 3, 4))
# As two adapters are: netlab gives each host one on every network.
FAST = Shape("fast/8", "8 hosts, 2 ranks each, four of twice the rate", 8, 2, fast_hosts=4)
NOT_UNIFORM = (RACKS, THIN_RACKS, SLOW, UNEQUAL, FAST)
GIGABIT = tuple(Shape(f"gigabit/{hosts}", f"{hosts} hosts at 1 Gbit/s", hosts, rate_mbps=1000)
                for hosts in (2, 4))
BUFFERS = tuple(Shape(f"buffer-{ms}/4", f"4 hosts, {ms} ms of buffer", 4, buffer_ms=ms)
                for ms in (1, 5))
# In a machine that is emulated, at a rate that leaves its processors time to spare.
FAR = (Shape("delay/4", "4 hosts at 50 Mbit/s, 20 ms away", 4, rate_mbps=50, delay_ms=10),
       Shape("loss/4", "4 hosts at 50 Mbit/s, 20 ms away, 0.5 % of the packets lost", 4,
             rate_mbps=50, delay_ms=10, loss_percent=0.25))
