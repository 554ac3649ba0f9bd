"""Who is compared: how each contender's ranks are started, and what has to be installed for it."""
import dataclasses
import json
import os
import pathlib
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAMS = "bench/peers"  # in the build folder
INSTALL = "tools/dependencies bench"


@dataclasses.dataclass(frozen=True)
class Contender:
    name: str  # who; variants of one name are alternatives, of which the fastest counts
    program: str  # in the folder PROGRAMS, or with its whole path
    launcher: str  # ropewalk, openmpi, mpich, or none: the program starts its own threads
    variant: str = ""
    launcher_options: tuple = ()
    options: tuple = ()  # of the program
    build: object = None  # its build folder, where that is another one than of the comparison

    @property
    def key(self):
        return f"{self.name}/{self.variant}" if self.variant else self.name

    def start(self, build, case, _folder):
        """The words that start the program on each rank; `_folder`: where the segment will be."""
        return {
            "ropewalk": [build / "tools/ropewalk", "run", "--no-prefix", "--no-stdin",
                         *self.launcher_options, "-n", case.ranks, "--"],
            "openmpi": ["mpirun.openmpi", "--bind-to", "none", "--oversubscribe",
                        *self.launcher_options, "-n", case.ranks],
            "mpich": ["mpirun.mpich", "-bind-to", "none", "-n", case.ranks],
            "none": [],
        }[self.launcher]

    def command(self, build, case, segment):
        """The command line that measures `case`; `segment`: a file that is not there yet."""
        build = self.build or build
        words = [*self.start(build, case, segment.parent), build / PROGRAMS / self.program,
                 "--ranks", case.ranks, "--collective", case.collective,
                 "--transport", case.transport, "--sizes", case.sizes, *self.options]
        if self.variant:
            words += ["--variant", self.variant]
        words += ["--budget-ms", case.budget_ms, "--iterations-min", case.iterations_min,
                  "--segment", segment]
        return [str(word) for word in words]

    def read(self, output):
        """A dictionary a size, from what the command prints."""
        return json_lines(output)


def json_lines(output):
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


@dataclasses.dataclass(frozen=True)
class LinkContender:
    """`ropewalk bench put` or pingpong between two ranks. It decides itself how often."""
    kind: str
    options: tuple = ()
    by_bandwidth: bool = False  # a message's time is taken from the bandwidth
    name: str = "Ropewalk"
    variant: str = ""

    @property
    def key(self):
        return self.name

    def command(self, build, case, _segment):
        return [str(build / "tools/ropewalk"), "bench", self.kind, "--transport", case.transport,
                "--sizes", case.sizes, "--json", *self.options]

    def read(self, output):
        for line in json_lines(output):
            times = {name: line[name] for name in ("min_us", "median_us", "p99_us")}
            if self.by_bandwidth:
                times = dict.fromkeys(times, line["bytes"] / line["bw_gbs"] / 1e3)
            yield {"variant": self.variant, "bytes": line["bytes"], "checked": True,
                   "iterations": line["iterations"], "wrong": line["wrong"], **times}


def ropewalk(name="Ropewalk", *options):
    return Contender(name, "ropewalk_peer", "ropewalk", options=options)


def open_mpi(name="Open MPI", *launcher_options):
    return Contender(name, "openmpi_peer", "openmpi", launcher_options=launcher_options)


def perftest(variant):
    return Contender("perftest", ROOT / "bench/peers/perftest_peer", "none", variant)


def gloo(variant):
    return Contender("Gloo", "gloo_peer", "ropewalk", variant)


MPICH = Contender("MPICH", "mpich_peer", "mpich")
OPEN_MPI_TCP = open_mpi("Open MPI", "--mca", "pml", "ob1", "--mca", "btl", "tcp,self",
                        "--mca", "btl_tcp_if_include", "lo")
# Without the two "any" it takes UCX for fabrics only.
OPEN_MPI_UCX = open_mpi("Open MPI over UCX", "--mca", "pml", "ucx", "--mca", "pml_ucx_tls", "any",
                        "--mca", "pml_ucx_devices", "any")
OPEN_MPI_YIELDING = open_mpi("Open MPI", "--mca", "mpi_yield_when_idle", "1")
OPEN_MPI_SPINNING = open_mpi("Open MPI without yielding", "--mca", "mpi_yield_when_idle", "0")
GLOO_VERBS = tuple(gloo(variant) for variant in ("halving_doubling", "ring_chunked"))
GLOO = tuple(gloo(variant) for variant in ("ring", "bcube", "halving_doubling", "ring_chunked"))
SHM_LIMIT = Contender("limit", "shm_limit", "none")
COPY_LIMITS = tuple(Contender("limit", "shm_limit", "none", variant)
                    for variant in ("plain", "streaming"))
TCP_LIMIT = Contender("limit", "tcp_limit", "ropewalk", "exchange")
PING_PONG = Contender("ping-pong", "tcp_limit", "ropewalk", "ping_pong")

# What must be there: Debian's package -> a program, or a pkg-config module, or a file.
PACKAGES = {
    "openmpi-bin": "mpirun.openmpi",
    "libopenmpi-dev": "ompi-c.pc",
    "mpich": "mpirun.mpich",
    "libmpich-dev": "mpich.pc",
    "libgloo-dev": "/usr/include/gloo/allreduce.h",
    "gnuplot-nox": "gnuplot",
    "libibverbs-dev": "libibverbs.pc",
}


@dataclasses.dataclass(frozen=True)
class Wheel:
    """A package of PyPI in a virtual environment."""
    package: str
    environment: pathlib.Path

    def version(self):
        found = self.environment.glob(f"lib/python3*/site-packages/{self.package}-*.dist-info")
        return next((path.stem.split("-")[1] for path in found), "unknown")


def is_there(what):
    if what.endswith(".pc"):
        return subprocess.run(["pkg-config", "--exists", what[:-3]], check=False).returncode == 0
    return pathlib.Path(what).exists() if what.startswith("/") else shutil.which(what) is not None


def missing_packages(needed):
    return [package for package, what in needed.items() if not is_there(what)]


def environment(case):
    """Of the processes that measure `case`: nothing of the caller's that would change what is
    measured."""
    tuned = ("ROPEWALK_", "OMPI_", "MPICH_", "PMIX_", "PMI_", "UCX_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(tuned)}
    # mpirun refuses root without these.
    return kept | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                   **dict(case.environment)}
