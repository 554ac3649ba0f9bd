"""What is measured, with whom, and what the project wants to reach."""
import dataclasses
import fnmatch

from comparison import contenders as c
from comparison import plots, report

UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclasses.dataclass(frozen=True)
class Case:
    """Jobs that take turns. Cases of one group are one line of a plot: they differ in sizes only."""
    group: str
    sizes: str  # as `ropewalk bench --sizes`
    contenders: tuple
    collective: str = "all_reduce"
    transport: str = "shm"
    ranks: int = 2
    budget_ms: int = 250  # measured time for each size
    iterations_min: int = 5
    quick_sizes: str = ""  # with --quick; empty: left out
    quick_contenders: tuple = ()  # with --quick; empty: all
    environment: tuple = ()  # (name, value) of variables, of every contender
    in_machine: bool = False  # of tools/rdma-vm
    shape: object = None  # network.Shape: the cluster of tools/netlab on which the case is measured

    @property
    def name(self):
        return f"{self.group} {self.sizes}"


@dataclasses.dataclass(frozen=True)
class Want:
    """What Ropewalk's time over the time of the fastest of those named is to be."""
    against: tuple
    time_ratio_max: float
    wanted: str
    say: object  # time ratio, name of the other -> what was measured, in the words of `wanted`

    @staticmethod
    def faster(times, *against):
        return Want(against, 1 / times, f"≥ {times:g}x as fast as {who(against)}",
                    lambda ratio, name: f"{1 / ratio:.2f}x as fast as {who((name,))}")

    @staticmethod
    def time_at_most(most, *against):
        return Want(against, most, f"≤ {most:g} of the time of {who(against)}",
                    lambda ratio, name: f"{ratio:.2f} of the time of {who((name,))}")

    @staticmethod
    def bandwidth(part, against, bound):
        """At least so much of a bandwidth; `bound` says whose."""
        return Want((against,), 1 / part, f"≥ {part:g} of the bandwidth of {bound}",
                    lambda ratio, name: f"{1 / ratio:.2f} of the bandwidth of {bound}")

    @staticmethod
    def elements(times, size_ratio, *against):
        """So many times the elements a second, where an element is so many times smaller."""
        return Want(against, size_ratio / times, f"≥ {times:g}x as many elements a second as float32",
                    lambda ratio, name: f"{size_ratio / ratio:.2f}x as many as float32")


def who(names):
    if len(names) > 1:
        return "the fastest peer"
    return f"the {names[0]}" if names[0] in ("limit", "bound") else names[0]


@dataclasses.dataclass(frozen=True)
class Row:
    """A line of the table. The first contender named `subject` is what is judged."""
    group: str
    size: str
    wants: tuple
    subject: str = "Ropewalk"
    in_mbs: bool = False  # shown in MB/s, not in microseconds

    def shown(self, us):
        return self.bytes / us if self.in_mbs else us

    @property
    def bytes(self):
        return parse_size(self.size)


def parse_size(text):
    return int(text[:-1]) * UNITS[text[-1]] if text[-1] in UNITS else int(text)


FLAG = ""  # of bench/compare
ROUNDS = 5
PACKAGES = c.PACKAGES
VERSIONS = {"Open MPI": "openmpi-bin", "MPICH": "mpich", "Gloo": "libgloo-dev"}

SHM = "all_reduce, shared memory, 2 ranks"
PLAIN = "all_reduce, shared memory, 2 ranks, plain memory"
CROWDED = "all_reduce, shared memory, 4 ranks on 2 cores"
HOST = "all_reduce, shared memory, 64 ranks on 2 cores"
TCP = "all_reduce, TCP loopback, 2 ranks"
TYPES = "all_reduce of bfloat16, shared memory, 2 ranks"
MOVES = {kind: f"{kind}, shared memory, 2 ranks"
         for kind in ("reduce_scatter", "all_gather", "broadcast")}

MPIS = ("Open MPI", "MPICH")
IN_SHM = (c.ropewalk(), c.open_mpi(), c.MPICH, c.SHM_LIMIT)
BY_TCP = (c.ropewalk(), c.OPEN_MPI_TCP, *c.GLOO, c.TCP_LIMIT, c.PING_PONG)

# Large sizes apart from small ones, so that contenders take turns often.
COLUMNS = report.judged("Open MPI", "MPICH", "Gloo", "limit")
PLOTS = plots.of_kinds("", ((SHM, "shared memory, 2 ranks"), (TCP, "TCP over loopback, 2 ranks")),
                       plots.LATENCY, plots.BANDWIDTH)
CASES = [
    Case(SHM, "8:1K", IN_SHM, budget_ms=100, quick_sizes="8,1K"),
    Case(SHM, "2K:256K", IN_SHM, budget_ms=150, quick_sizes="64K"),
    Case(SHM, "512K:4M", IN_SHM, quick_sizes="1M"),
    Case(SHM, "8M,16M", IN_SHM, quick_sizes="16M"),
    Case(SHM, "32M,64M", IN_SHM, budget_ms=400),
    Case(PLAIN, "1M,16M,64M", (c.ropewalk("Ropewalk", "--buffers", "plain"), c.open_mpi(), c.MPICH),
         quick_sizes="1M"),
    Case(CROWDED, "8,1M", (c.ropewalk(), c.OPEN_MPI_YIELDING, c.OPEN_MPI_SPINNING, c.MPICH),
         ranks=4, quick_sizes="8"),
    Case(HOST, "8,256K", (c.ropewalk(), c.OPEN_MPI_YIELDING, c.MPICH), ranks=64),
    Case(TCP, "8:32K", BY_TCP, transport="tcp", budget_ms=100, quick_sizes="8"),
    Case(TCP, "64K:4M", BY_TCP, transport="tcp", budget_ms=150, quick_sizes="1M"),
    Case(TCP, "8M,16M", BY_TCP, transport="tcp"),
    Case(TCP, "32M,64M", BY_TCP, transport="tcp"),
    Case(TYPES, "16M", (c.ropewalk("Ropewalk", "--dtype", "bfloat16"),
                        c.ropewalk("Ropewalk float32")), quick_sizes="1M"),
    *(Case(MOVES[kind], "1M,16M", (*IN_SHM[:-1], *c.COPY_LIMITS), collective=kind,
           quick_sizes="1M") for kind in MOVES),
]

NEAR_LIMIT = Want.time_at_most(1.3, "limit")
ROWS = [
    Row(SHM, "8", (Want.time_at_most(1, *MPIS),)),
    Row(SHM, "1K", (Want.time_at_most(1, *MPIS),)),
    Row(SHM, "64K", (Want.faster(5, *MPIS),)),
    Row(SHM, "1M", (Want.faster(6, *MPIS), NEAR_LIMIT)),
    Row(SHM, "16M", (Want.faster(6, *MPIS), NEAR_LIMIT)),
    Row(SHM, "64M", (Want.faster(5, *MPIS), NEAR_LIMIT)),
    *(Row(PLAIN, size, (Want.faster(2, *MPIS),)) for size in ("1M", "16M", "64M")),
    Row(CROWDED, "8", (Want.time_at_most(1, "Open MPI"),)),
    Row(CROWDED, "1M", (Want.faster(2.5, "Open MPI"),)),
    *(Row(HOST, size, (Want.time_at_most(1, *MPIS),)) for size in ("8", "256K")),
    Row(TCP, "8", (Want.time_at_most(0.8, "Open MPI"), Want.faster(1.5, "Gloo"))),
    Row(TCP, "1M", (Want.time_at_most(0.87, "Open MPI"), Want.faster(1.5, "Gloo"))),
    Row(TCP, "64M", (Want.time_at_most(0.65, "Open MPI"), Want.faster(1.5, "Gloo"))),
    Row(TYPES, "16M", (Want.elements(1.6, 2, "Ropewalk float32"),)),
    *(Row(MOVES[kind], size, (Want.faster(6, *MPIS),)) for kind in MOVES for size in ("1M", "16M")),
]


def bounds(_):
    """The limits are measured themselves: nothing is made from other measurements."""
    return []


def chosen_cases(all_cases, pattern, quick):
    """The cases whose names contain the pattern (or match it, where it has wildcards)."""
    cases = [case for case in all_cases if not quick or case.quick_sizes]
    if quick:
        cases = [dataclasses.replace(case, sizes=case.quick_sizes, budget_ms=3, iterations_min=2,
                                     contenders=case.quick_contenders or case.contenders)
                 for case in cases]
    return [case for case in cases if pattern in case.name or fnmatch.fnmatch(case.name, pattern)]
