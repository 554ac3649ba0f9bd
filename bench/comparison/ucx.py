"""What is measured over UCX, within this machine, and what the project wants."""
from comparison import contenders as c
from comparison import report
from comparison.cases import Case, Row, Want

FLAG = "ucx"
ROUNDS = 5
PACKAGES = c.PACKAGES | {"libucx-dev": "ucx.pc", "ucx-utils": "ucx_perftest"}
VERSIONS = {"UCX": "libucx0", "Open MPI": "openmpi-bin"}

PUT = c.LinkContender("put")
ECHO = c.LinkContender("pingpong")
STREAM = c.LinkContender("put", by_bandwidth=True)


def perftest(name, test):
    return c.Contender(name, c.ROOT / "bench/peers/ucx_perftest_peer", "none", test)


def perftests(wires, test):
    """Over shared memory UCX 1.13 has no endpoints that handle errors."""
    plain = perftest("ucx_perftest", test)
    return (plain, perftest("ucx_perftest -e", test + "-e")) if wires == TCP else (plain,)


def put(wires):
    return f"one-sided writes, half of a round trip, UCX_TLS={wires}"


def ping_pong(wires):
    return f"messages, half of a round trip, UCX_TLS={wires}"


def stream(wires):
    return f"one-sided writes in a row, time a message, UCX_TLS={wires}"


def all_reduce(wires):
    return f"all_reduce, 2 ranks, UCX_TLS={wires}"


POSIX, CMA, TCP = "posix,self", "posix,cma,self", "tcp,self"
WIRES = (POSIX, TCP)
SIZES = ("8", "4K", "1M")


def over(wires, group, sizes, contenders, **more):
    return Case(group, sizes, contenders, transport="ucx", environment=(("UCX_TLS", wires),), **more)


# What is compared stands close together, since the machine's speed changes from minute to minute.
CASES = [
    *(case for wires in WIRES for size in SIZES for case in (
        over(wires, put(wires), size, (PUT, *perftests(wires, "tag_lat")), quick_sizes=size),
        over(wires, ping_pong(wires), size, (ECHO, *perftests(wires, "tag_lat"))),
        over(wires, stream(wires), size, (STREAM, *perftests(wires, "tag_bw"))))),
    *(over(wires, all_reduce(wires), "8", (c.ropewalk(), perftest("ucx_perftest", "tag_lat")),
           quick_sizes="8") for wires in WIRES),
    over(CMA, all_reduce(CMA), "16M", (c.ropewalk(), c.OPEN_MPI_UCX, c.open_mpi()),
         quick_sizes="16M"),
]

COLUMNS = report.judged("ucx_perftest", "ucx_perftest -e", "Open MPI over UCX", "Open MPI")
PLOTS = ()
ROWS = [
    *(Row(group(wires), size, (Want.time_at_most(1.15, "ucx_perftest"),))
      for wires in WIRES for group in (put, ping_pong, stream) for size in SIZES),
    *(Row(all_reduce(wires), "8", (Want.time_at_most(1.6, "ucx_perftest"),)) for wires in WIRES),
    Row(all_reduce(CMA), "16M", (Want.faster(2, "Open MPI over UCX"),)),
]


def bounds(_):
    """The peers are measured themselves: nothing is made from other measurements."""
    return ()
