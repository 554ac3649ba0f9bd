"""JAX's own collectives over Ropewalk, beside the same over gloo: `ropewalk run --jax`."""

import ctypes
import os
import pathlib
import socket
import subprocess
import sys

import numpy as np
import pytest

BUILD = pathlib.Path(__file__).resolve().parent.parent.parent / "build"
COMMAND, LIBRARY = BUILD / "tools/ropewalk", BUILD / "integrations/jax/libropewalk-jax.so"
PROGRAMS = pathlib.Path(__file__).with_name("programs.py")
RANKS, LIMIT_S = 4, 240


def run(program, file, *flags, **environment):
    own = {name: value for name, value in os.environ.items() if not name.startswith(("ROPEWALK_", "JAX_", "MPITR"))}
    own |= {"JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "1", **environment}
    return subprocess.run([COMMAND, "run", "-n", str(RANKS), *flags, "--", sys.executable, PROGRAMS, program, file],
                          env=own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S)


def over_ropewalk(program, folder):
    ended = run(program, folder / "ropewalk", "--jax", ROPEWALK_LOG="info")
    assert ended.returncode == 0, ended.stdout
    assert f"joined {RANKS} ranks" in ended.stdout  # or it would be gloo that passes
    return [np.load(folder / f"ropewalk.{rank}.npz") for rank in range(RANKS)]


def over_gloo(program, folder):
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = "127.0.0.1:%d" % free.getsockname()[1]
    ended = run(program, folder / "gloo", JAX_COORDINATOR_ADDRESS=address,
                JAX_CPU_COLLECTIVES_IMPLEMENTATION="gloo")
    assert ended.returncode == 0, ended.stdout
    return [np.load(folder / f"gloo.{rank}.npz") for rank in range(RANKS)]


@pytest.mark.parametrize("program, results", [("collectives", 50), ("part_of_the_ranks", 1), ("training", 2)])
def test_results_are_those_of_gloo(program, results, tmp_path):
    for ours, theirs in zip(over_ropewalk(program, tmp_path), over_gloo(program, tmp_path)):
        assert set(ours) == set(theirs) and len(ours.files) >= results
        for name in ours:
            np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-5, atol=1e-6, err_msg=name)


def test_a_lost_rank_is_an_exception_that_names_it(tmp_path):
    ended = run("lost_rank", tmp_path / "none", "--jax", "--grace", "20")
    assert ended.returncode == 128 + 9, ended.stdout
    for rank in (0, 1, 3):
        told = [line for line in ended.stdout.splitlines() if line.startswith(f"[{rank}] told:")]
        assert told and "rank 2" in told[0], ended.stdout


def test_a_call_that_is_missing_is_named(capfd):
    library = ctypes.CDLL(str(LIBRARY))
    assert library.MPIABI_File_open(0, 0, 0, 0, 0) != 0
    assert "MPIABI_File_open is called" in capfd.readouterr().err
    text, length = ctypes.create_string_buffer(1024), ctypes.c_int()
    rank = ctypes.c_int()
    world = ctypes.c_ssize_t.in_dll(library, "MPIABI_COMM_WORLD")
    assert library.MPIABI_Comm_rank(world, ctypes.byref(rank)) != 0
    library.MPIABI_Error_string(0, text, ctypes.byref(length))
    assert b"between MPI_Init_thread and MPI_Finalize" in text.value


def test_several_launchers_need_an_address(tmp_path):
    ended = run("training", tmp_path / "none", "--jax", "--nnodes", "2", "--node-rank", "0",
                "--coordinator", "localhost:9", ROPEWALK_JOB_KEY="0123456789abcdef" * 4)
    assert ended.returncode == 2 and "set JAX_COORDINATOR_ADDRESS=host:port" in ended.stdout, ended.stdout
