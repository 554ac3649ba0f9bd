"""What is measured on clusters of tools/netlab, and what the project wants."""
import dataclasses
import shlex

from comparison import contenders as c
from comparison import plots, report, shapes
from comparison.cases import Case, Row, Want, parse_size

FLAG = "network"
ROUNDS = 1
PACKAGES = c.PACKAGES | {"qemu-system-x86": "qemu-system-x86_64", "busybox-static": "busybox",
                         "iproute2": "ip"}
VERSIONS = {"Open MPI": "openmpi-bin", "Gloo": "libgloo-dev"}
PYTHON = c.ROOT / ".cache/python/bin/python"
BEST = "its best algorithm"  # Ropewalk's, by force: each is a variant
ONE_WAY = "one way"
TORCH = "PyTorch's Gloo"
PEERS = ("Gloo", TORCH, "Open MPI")
# Hosts share this machine's cores: it has to yield.
OPEN_MPI = ("mpirun.openmpi", "--bind-to", "none", "--oversubscribe",
            "--mca", "mpi_yield_when_idle", "1", "--mca", "pml", "ob1",
            "--mca", "btl", "tcp,self,vader", "--mca", "btl_tcp_if_exclude", "lo")


def on_cluster(case, folder, launcher):
    """The words before a program that runs on every rank of the case's cluster."""
    return [c.ROOT / "tools/netlab", *case.shape.netlab_options(), "--memory", folder, "--launcher",
            shlex.join(str(word) for word in launcher), "--"]


def ropewalk_run(build):
    return [build / "tools/ropewalk", "run", "--no-prefix", "--no-stdin", "-x", "ROPEWALK_TUNING=none"]


@dataclasses.dataclass(frozen=True)
class NetworkContender(c.Contender):
    options: tuple = ("--shared-cores", "--warm-ups", "1", "--interface", "eth0")

    def start(self, build, case, folder):
        if self.launcher == "openmpi":
            return on_cluster(case, folder, OPEN_MPI)
        words = on_cluster(case, folder, ropewalk_run(build))
        return [*words, PYTHON] if self.launcher == "python" else words


class PingPong(NetworkContender):
    """With bare sockets, between two hosts with the same links."""
    def command(self, build, case, segment):
        pair = dataclasses.replace(case, shape=case.shape.pair(), ranks=2, collective="all_reduce")
        return super().command(build, pair, segment)


def forced(*algorithms):
    return tuple(NetworkContender(BEST, "ropewalk_peer", "ropewalk", one) for one in algorithms)


def gloo(*variants):
    return tuple(NetworkContender("Gloo", "gloo_peer", "ropewalk", one) for one in variants)


DEFAULT = NetworkContender("Ropewalk", "ropewalk_peer", "ropewalk")
OPEN_MPI_PEER = NetworkContender("Open MPI", "openmpi_peer", "openmpi")
TORCH_PEER = NetworkContender(TORCH, c.ROOT / "bench/torch/peer", "python")
LINK = PingPong(ONE_WAY, "tcp_limit", "ropewalk", "ping_pong")

# Algorithms that send whole vectors to many, or each byte several times, are not tried where a size
# takes a second already. Those that use hosts are added where one has several ranks.
SMALL, LARGE, LARGEST = "8,4K,64K,1M", "8M", "32M"
FAR = "8,4K,64K,1M,8M"  # with a delay, where processors are emulated and programs start slowly
MANY = ("ring", "tree", "halving_doubling", "direct")
ALGORITHMS = {
    "all_reduce": {SMALL: (*MANY, "recursive_doubling", "one_shot"), LARGE: MANY, LARGEST: ("ring",),
                   FAR: MANY},
    "reduce_scatter": dict.fromkeys((SMALL, LARGE), ("ring", "halving_doubling", "direct")),
    "all_gather": dict.fromkeys(
        (SMALL, LARGE), ("ring", "recursive_doubling", "halving_doubling", "direct")),
    "broadcast": dict.fromkeys((SMALL, LARGE), ("ring", "tree", "direct", "scattered")),
}
GLOO = {SMALL: gloo("ring", "bcube", "halving_doubling", "ring_chunked"),
        LARGE: gloo("ring", "halving_doubling", "ring_chunked"),
        LARGEST: gloo("ring", "ring_chunked"),
        FAR: gloo("halving_doubling", "ring_chunked")}
BUDGETS_MS = {SMALL: 500, LARGE: 2000, LARGEST: 2000, FAR: 1000}
TORCH_RANKS_MAX = 8  # as many programs as this start in some seconds


def takes_torch(shape):
    """Emulated, it would take minutes to start."""
    return has_torch() and shape.ranks <= TORCH_RANKS_MAX and not shape.delay_ms


def contenders(collective, shape, sizes):
    several = ("two_level",) if shape.ranks > shape.hosts else ()
    if several and collective == "all_reduce" and sizes == SMALL:
        several = (*several, "leaders")
    if not shape.is_uniform:  # netlab describes it to the job
        several = (*several, "synthesized")
    own = (DEFAULT, *forced(*ALGORITHMS[collective][sizes], *several))
    if collective != "all_reduce":
        return (*own, OPEN_MPI_PEER)
    torch = (TORCH_PEER,) if takes_torch(shape) else ()
    return (*own, *GLOO[sizes], *torch, OPEN_MPI_PEER)


def has_torch():
    return any((PYTHON.parent.parent / "lib").glob("python3*/site-packages/torch"))


def group_of(collective, shape):
    return f"{collective}, {shape.name}: {shape.says}"


def cases_of(collective, shape, *all_sizes, **more):
    """A case for each of `all_sizes`; `more`: of the first, which also measures the link."""
    # Not by an RDMA adapter, such as that of tools/rdma-vm, whose path is not the cluster's.
    transport = "tcp" if shape.ranks == shape.hosts else "auto"
    for sizes in all_sizes:
        link = (LINK,) if sizes == all_sizes[0] else ()
        yield Case(group_of(collective, shape), sizes, (*contenders(collective, shape, sizes), *link),
                   collective=collective, transport=transport, ranks=shape.ranks, iterations_min=3,
                   budget_ms=BUDGETS_MS[sizes], in_machine=bool(shape.delay_ms), shape=shape,
                   **(more if sizes == all_sizes[0] else {}))


QUICKLY = {
    shapes.FLAT_4: {"quick_sizes": "8,64K"},
    shapes.TWO_RANKS: {"quick_sizes": "64K", "quick_contenders": (
        DEFAULT, *forced("two_level"), *gloo("ring_chunked"), OPEN_MPI_PEER)},
    shapes.RACKS: {"quick_sizes": "64K", "quick_contenders": (DEFAULT, OPEN_MPI_PEER)},
}
ALL_REDUCE = {
    **dict.fromkeys((*shapes.FLAT, *shapes.SEVERAL_RANKS, *shapes.NOT_UNIFORM), (SMALL, LARGE, LARGEST)),
    **dict.fromkeys((shapes.ADAPTERS, *shapes.GIGABIT, *shapes.BUFFERS), (SMALL, LARGE)),
    **dict.fromkeys(shapes.FAR, (FAR,)),
}
CASES = [
    *(case for shape, sizes in ALL_REDUCE.items()
      for case in cases_of("all_reduce", shape, *sizes, **QUICKLY.get(shape, {}))),
    *(case for collective in ("reduce_scatter", "all_gather", "broadcast")
      for shape in (shapes.FLAT_8, shapes.TWO_RANKS)
      for case in cases_of(collective, shape, SMALL, LARGE)),
]


def share_of_bound(shape, size):
    """How much of the bound is wanted from 1 MiB on."""
    if shape in shapes.FAR:
        return 0.8
    if shape in shapes.NOT_UNIFORM and parse_size(size) >= parse_size("8M"):
        return 0.9 if shape in (shapes.UNEQUAL, shapes.FAST) else 0.92
    return 0.85 if shape in (*shapes.NOT_UNIFORM, shapes.ADAPTERS) else 0.93


def wants(collective, shape, size):
    if parse_size(size) <= parse_size("4K"):
        return (Want.time_at_most(1.3, "bound"), Want.time_at_most(1, *PEERS),
                Want.time_at_most(1.1, BEST))
    found = (Want.time_at_most(1, *PEERS), Want.time_at_most(1.05, BEST))
    if parse_size(size) < parse_size("1M"):
        return found
    gloo_times = {shapes.FLAT_4: 1.08, shapes.FLAT_8: 1.02, shapes.SLOW: 1.5}.get(shape)
    if shape == shapes.SLOW and parse_size(size) < parse_size("8M"):
        gloo_times = None
    if collective == "all_reduce" and gloo_times:
        found += (Want.faster(gloo_times, "Gloo"),)
    return (Want.bandwidth(share_of_bound(shape, size), "bound", "the bound"), *found,
            Want.faster(1.8, "Open MPI"))


ROWS = [Row(case.group, size, wants(case.collective, case.shape, size))
        for case in CASES for size in case.sizes.split(",")]


def bounds(measurements):
    """Beside each measurement of Ropewalk: of a short message, the steps that it takes."""
    shape_of = {case.group: (case.collective, case.shape) for case in CASES}
    one_way_us = {(one["group"], one["round"], one["bytes"]): one["median_us"]
                  for one in measurements if one["name"] == ONE_WAY}
    for one in measurements:
        if one["name"] == "Ropewalk":
            size = one["bytes"]
            collective, shape = shape_of[one["group"]]
            step_us = one_way_us.get((one["group"], one["round"], size))
            us = (shape.steps_us(step_us) if step_us and size <= parse_size("4K")
                  else shape.bound_us(collective, size))
            yield {**one, "name": "bound", "min_us": us, "median_us": us, "p99_us": us}


def with_name(contender, field):
    """A column: the contender's time, and what stands in this field of its entry."""
    def text(row, entries, _):
        entry = entries.get((row.group, contender, row.bytes))
        return f"{report.number(entry['median_us'])} ({entry[field]})" if entry else ""
    return report.Column(contender, text)


def beside(head, *others, say):
    """A column of the time ratio to the fastest of the others."""
    def text(row, entries, _):
        found = [entries[row.group, name, row.bytes] for name in others
                 if (row.group, name, row.bytes) in entries]
        if not found:
            return ""
        fastest = min(found, key=lambda entry: entry["median_us"])
        return say(report.time_ratio(entries[row.group, row.subject, row.bytes], fastest))
    return report.Column(head, text)


def missed(_row, _entries, verdicts):
    return "<br>".join(one.wanted for one in verdicts if not one.met)


COLUMNS = (
    report.time_of("bound"), with_name("Ropewalk", "algorithm"), with_name(BEST, "variant"),
    beside("regret", BEST, say=lambda ratio: f"{100 * (ratio - 1):.0f} %"),
    *map(report.time_of, PEERS),
    beside("of the bound", "bound", say=lambda ratio: f"{1 / ratio:.2f}"),
    beside("beside the fastest peer", *PEERS, say=lambda ratio: f"{1 / ratio:.2f}x"),
    report.Column("wanted and missed", missed, "---"),
)
PLOTS = plots.of_kinds("network_", ((group_of("all_reduce", shapes.FLAT_8), shapes.FLAT_8.says),),
                       plots.LATENCY, plots.SHARE)
