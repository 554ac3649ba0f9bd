"""What is measured over RDMA, inside the machine of tools/rdma-vm, and what the project wants."""
from comparison import contenders as c
from comparison import report
from comparison.cases import Case, Row, Want, parse_size

FLAG = "rdma"
ROUNDS = 2
PACKAGES = c.PACKAGES | {"qemu-system-x86": "qemu-system-x86_64", "busybox-static": "busybox",
                         "perftest": "ib_write_lat"}
VERSIONS = {"Open MPI": "openmpi-bin", "Gloo": "libgloo-dev", "perftest": "perftest"}

LATENCY = "one-sided writes, half of a round trip"
PING_PONG = "messages, half of a round trip"
ONE_WAY = "one-sided writes, one way, MB/s"
BOTH_WAYS = "one-sided writes, both ways at once, MB/s"
TWO = "all_reduce, 2 ranks"
FOUR = "all_reduce, 4 ranks on 2 CPUs"

# Soft-RoCE takes no message above 8 MiB: their rate stands for that of 16 MiB.
LONGEST = "8M"
LONG_BOTH_WAYS = "one-sided writes of 8 MiB, both ways at once, MB/s"
# Of perftest, in the table's rows of all_reduce: made from what it said of writes (see bounds).
BOUND = "`ib_write_bw -b`"

PUT = c.LinkContender("put")
PUT_ONE_WAY = c.LinkContender("put", by_bandwidth=True)
PUT_BOTH_WAYS = c.LinkContender("put", ("--both",), by_bandwidth=True)
ECHO = c.LinkContender("pingpong")
ALL = (c.ropewalk(), *c.GLOO_VERBS, c.OPEN_MPI_TCP)


def verbs(group, sizes, contenders, **more):
    return Case(group, sizes, contenders, transport="verbs", in_machine=True, **more)


# What is compared stands close together, since the machine's speed changes from minute to minute.
CASES = [
    verbs(LATENCY, "8", (PUT, c.perftest("ib_write_lat")), quick_sizes="8"),
    verbs(TWO, "8", ALL, quick_sizes="8"),
    verbs(PING_PONG, "8", (ECHO, c.perftest("ib_send_lat")), quick_sizes="8"),
    verbs(LATENCY, "1M", (PUT, c.perftest("ib_write_lat"))),
    verbs(ONE_WAY, "64K,1M", (PUT_ONE_WAY, c.perftest("ib_write_bw")), budget_ms=300,
          quick_sizes="64K"),
    verbs(BOTH_WAYS, "8,64K,1M", (PUT_BOTH_WAYS, c.perftest("ib_write_bw_both")), budget_ms=300,
          quick_sizes="64K"),
    verbs(TWO, "1M", ALL),
    verbs(FOUR, "1M", (c.ropewalk(),), ranks=4),
    verbs(LONG_BOTH_WAYS, LONGEST, (c.perftest("ib_write_bw_both"),), budget_ms=1500),
    verbs(TWO, "16M", ALL, budget_ms=2500),
]

COLUMNS = report.judged("Open MPI", "Gloo", "perftest")
PLOTS = ()
ROWS = [
    *(Row(LATENCY, size, (Want.time_at_most(1.1, "perftest"),)) for size in ("8", "1M")),
    Row(PING_PONG, "8", ()),
    *(Row(ONE_WAY, size, (Want.bandwidth(0.95, "perftest", "`ib_write_bw`"),), in_mbs=True)
      for size in ("64K", "1M")),
    *(Row(BOTH_WAYS, size, (), in_mbs=True) for size in ("8", "64K", "1M")),
    Row(TWO, "8", (Want.time_at_most(1.5, "perftest"),)),
    *(Row(TWO, size, (Want.bandwidth(0.9, "perftest", BOUND),)) for size in ("1M", "16M")),
    Row(FOUR, "1M", (Want.bandwidth(0.8, "perftest", BOUND),)),
]


def bound_of(ranks, row, one):
    """What perftest's measurement `one` says that an all_reduce takes at least, or None.

    The ranks' writes, 2(n-1)/n of the vector from each of n, 2(n-1) of it in all, pass one
    adapter at the rate of both directions together."""
    if row.size == "8":
        return one["median_us"] if (one["group"], one["bytes"]) == (LATENCY, row.bytes) else None
    message_bytes = min(row.bytes, parse_size(LONGEST))
    if one["group"] not in (BOTH_WAYS, LONG_BOTH_WAYS) or one["bytes"] != message_bytes:
        return None
    return one["median_us"] / message_bytes * 2 * (ranks - 1) * row.bytes


def bounds(measurements):
    """Of the rows of all_reduce, as measurements of perftest: one a round."""
    for ranks, row in ((4 if row.group == FOUR else 2, row) for row in ROWS
                       if row.group in (TWO, FOUR)):
        for one in measurements:
            if one["name"] == "perftest" and (us := bound_of(ranks, row, one)) is not None:
                yield {**one, "group": row.group, "bytes": row.bytes, "min_us": us,
                       "median_us": us, "p99_us": us}
