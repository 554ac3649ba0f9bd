"""What is installed: extensions can be built against it, and the command is there."""

import ctypes
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig

import pytest

import ropewalk

PROGRAM = """
#include <cstdio>
#include "ropewalk/communicator.h"
int main() {
  auto comm = ropewalk::Communicator::create();
  std::printf("rank %d of %d\\n", comm->rank(), comm->size());
}
"""

SCRIPT = """
import numpy, ropewalk
with ropewalk.Communicator() as comm:
    print(comm.all_reduce(numpy.ones(1)))
"""


def run(*command):
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=120)
    return done.stdout


def test_cpp_compiles_against_the_package(tmp_path):
    if not shutil.which("c++"):
        pytest.skip("no C++ compiler")
    source, program = tmp_path / "sum.cc", tmp_path / "sum"
    source.write_text(PROGRAM)
    library = ropewalk.get_library()
    run("c++", "-std=c++20", f"-I{ropewalk.get_include()}", str(source), library,
        f"-Wl,-rpath,{os.path.dirname(library)}", "-o", str(program))
    assert run(str(program)) == "rank 0 of 1\n"


def test_the_library_is_loaded_once():
    with open("/proc/self/maps", encoding="utf-8") as maps:
        loaded = {line.split()[-1] for line in maps if "libropewalk" in line}
    assert loaded == {ropewalk.get_library()}


def test_the_command_starts_python_ranks():
    command = os.path.join(sysconfig.get_path("scripts"), "ropewalk")
    assert ropewalk.__version__ in run(command, "--version")
    said = run(command, "run", "-n", "2", "--", sys.executable, "-c", SCRIPT)
    assert said.count("[2.]") == 2


def test_the_command_finds_the_library_for_jax():
    command = pathlib.Path(sys.executable).with_name("ropewalk")
    told = subprocess.run([command, "run", "-n", "1", "--jax", "--no-prefix", "--", "env"], stdout=subprocess.PIPE,
                          text=True, check=True).stdout
    path = re.search("^MPITRAMPOLINE_LIB=(.*)$", told, re.M)[1]
    library = ctypes.CDLL(path)  # with libropewalk.so
    assert pathlib.Path(path).with_name("libropewalk.so").exists() and library.MPIABI_Finalize
    assert "JAX_CPU_COLLECTIVES_IMPLEMENTATION=mpi\n" in told and "JAX_COORDINATOR_ADDRESS=127.0.0.1:" in told
