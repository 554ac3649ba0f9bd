"""Processes that wait to join a job, and what ends that; ranks that leave it."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

import ropewalk
from ranks import run_ranks
from scripts import run_script

LIMIT_S = 60
KEY = "ab" * 32
PRELUDE = """
import os, sys, time
import numpy as np
import ropewalk
options = dict(coordinator=sys.argv[1], key="%s", timeout=30)
""" % KEY
MEMBER = """
comm = ropewalk.Communicator(rank=0, size=1, elastic=True, **options)
print("listens", flush=True)
while comm.pending == 0:
    time.sleep(0.01)
print("somebody waits", flush=True)
sys.stdin.read()
"""


def free_address():
    """Below the ephemeral ports: connections do not take it."""
    for port in range(20000 + os.getpid() % 5000, 32768):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return f"127.0.0.1:{port}"
    raise AssertionError("no port is free")


@contextlib.contextmanager
def process(script, *arguments, **environment):
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("ROPEWALK_")}
    with subprocess.Popen([sys.executable, "-c", PRELUDE + script, *arguments], env={**inherited, **environment},
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as started:
        try:
            yield started
        finally:
            started.kill()


@contextlib.contextmanager
def job():
    """The address of one that takes in nobody, and its process."""
    address = free_address()
    with process(MEMBER, address) as member:
        assert member.stdout.readline() == "listens\n", member.stdout.read()
        yield address, member


# Only SIGKILL ended it: no Python code ran while it waited.
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_newcomer_that_waits(number):
    script = """
import signal
signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended in order"))
ropewalk.Communicator(join_running=True, **options)
"""
    with job() as (address, member), process(script, address) as newcomer:
        assert member.stdout.readline() == "somebody waits\n"
        newcomer.send_signal(number)
        output, _ = newcomer.communicate(timeout=LIMIT_S)
        if number == signal.SIGINT:
            assert newcomer.returncode == -signal.SIGINT and "KeyboardInterrupt" in output, output
        else:
            assert newcomer.returncode == 1 and "ended in order" in output, output


def test_a_signal_ends_a_rank_that_waits_for_others():
    script = """
print("joins", flush=True)
ropewalk.Communicator(rank=1, size=2, join_timeout=1000, **options)
"""
    with process(script, free_address()) as rank:
        assert rank.stdout.readline() == "joins\n"
        time.sleep(0.3)
        rank.send_signal(signal.SIGINT)
        output, _ = rank.communicate(timeout=LIMIT_S)
        assert rank.returncode == -signal.SIGINT and "KeyboardInterrupt" in output, output


# It waited until the job ended.
def test_a_newcomer_waits_no_longer_than_its_deadline():
    with job() as (address, _):
        with pytest.raises(ropewalk.TimeoutError, match=f"members of the job at {address} to call grow"):
            ropewalk.Communicator(coordinator=address, key=KEY, join_running=True, admission_timeout=0.3)


def test_a_newcomer_is_stopped_by_another_thread():
    stop = threading.Event()
    with job() as (address, member):
        def stop_it():
            member.stdout.readline()
            stop.set()

        thread = threading.Thread(target=stop_it)
        thread.start()
        with pytest.raises(ropewalk.AbortedError, match="stopped by its caller, as it waited for the members"):
            ropewalk.Communicator(coordinator=address, key=KEY, join_running=True, stop=stop)
        thread.join()


def departs(comm, leaver):
    comm.agree(1)  # all have joined
    if comm.rank == leaver:
        comm.depart()
        assert comm.closed
        return "departed"
    with pytest.raises(ropewalk.RevokedError, match=f"rank {leaver} has departed"):
        while True:
            comm.barrier()
    comm = comm.shrink()
    comm.barrier()
    return comm.size


@pytest.mark.parametrize("ranks, leaver", [(3, 0), (2, 1)])
def test_a_rank_departs(transport, ranks, leaver):
    outcomes = run_ranks(ranks, departs, leaver, transport=transport)
    assert outcomes.pop(leaver) == "departed" and outcomes == [ranks - 1] * (ranks - 1)


# docs/elastic.md: "Leaving on SIGTERM".
LEAVING = """
leaving = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: leaving.set())
comm, step = join(), 0
while step < 60:
    try:
        if rank == 1 and step == 20:
            os.kill(os.getpid(), signal.SIGTERM)
        if leaving.is_set():
            comm.depart()
            sys.exit(0)
        comm.all_reduce(np.ones(100))
        step += 1
    except ropewalk.Error as error:
        if not error.is_survivable:
            raise
        comm = comm.shrink()
        step = int(comm.all_reduce(np.array([step]), "max")[0])
print("ended with", comm.size, flush=True)
comm.close()
"""


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_rank_leaves_on_sigterm(ranks):
    ended = run_script(ranks, LEAVING)
    assert [one.status for one in ended] == [0] * ranks, [one.output for one in ended]
    assert ended.pop(1).output == ""
    assert {one.output for one in ended} == {f"ended with {ranks - 1}\n"}


# All variables of a rank stay as they are when it is started again.
RANK = """
comm = ropewalk.Communicator()
print("epoch", comm.epoch.number, "has", comm.size, flush=True)
while True:
    try:
        if comm.all_reduce(np.array([os.path.exists(sys.argv[2])], np.int32), "max")[0]:
            break
        grown = comm.grow()
        if grown is not None:
            comm = grown
            print("epoch", comm.epoch.number, "has", comm.size, flush=True)
        time.sleep(0.01)
    except ropewalk.Error as error:
        if not error.is_survivable:
            raise
        comm = comm.shrink()
comm.close()
"""


def begin_job(stack, address, end):
    """What starts a rank by its number, and three of them that have begun a job."""
    def rank(number):
        return stack.enter_context(process(
            RANK, address, str(end), ROPEWALK_RANK=str(number), ROPEWALK_SIZE="3", ROPEWALK_JOB_KEY=KEY,
            ROPEWALK_COORDINATOR=address, ROPEWALK_ELASTIC="1", ROPEWALK_JOIN_RUNNING="auto",
            ROPEWALK_JOIN_TIMEOUT="20"))

    ranks = [rank(number) for number in range(3)]
    for one in ranks:
        assert one.stdout.readline() == "epoch 0 has 3\n", one.stdout.read()
    return rank, ranks


@pytest.mark.parametrize("victim", [0, 2])
def test_a_rank_that_is_started_again_rejoins(victim, tmp_path):
    address, end = free_address(), tmp_path / "end"

    with contextlib.ExitStack() as stack:
        rank, ranks = begin_job(stack, address, end)
        ranks[victim].kill()
        ranks[victim] = rank(victim)
        for one in ranks:
            line = one.stdout.readline()
            while line == "epoch 1 has 2\n":  # where `grow` has followed the death
                line = one.stdout.readline()
            assert line == "epoch 2 has 3\n", line + one.stdout.read()
        end.touch()
        assert [one.wait(LIMIT_S) for one in ranks] == [0, 0, 0]


def test_ranks_that_wait_for_a_job_that_ends_begin_it_anew(tmp_path):
    address, end = free_address(), tmp_path / "end"

    with contextlib.ExitStack() as stack:
        rank, ranks = begin_job(stack, address, end)
        for number in [1, 2]:  # more than half: the last one has no quorum, and ends
            ranks[number].kill()
        for number in [1, 2]:
            ranks[number] = rank(number)
        output, _ = ranks[0].communicate(timeout=LIMIT_S)
        assert ranks[0].returncode == 1 and "NoQuorumError" in output, output
        ranks[0] = rank(0)
        for one in ranks:
            assert one.stdout.readline() == "epoch 0 has 3\n", one.stdout.read()
        end.touch()
        assert [one.wait(LIMIT_S) for one in ranks] == [0, 0, 0]


def test_joining_what_may_run_needs_an_elastic_job():
    with process("ropewalk.Communicator()", free_address(), ROPEWALK_RANK="0", ROPEWALK_SIZE="1",
                 ROPEWALK_JOIN_RUNNING="auto") as rank:
        output, _ = rank.communicate(timeout=LIMIT_S)
        assert rank.returncode == 1 and "set ROPEWALK_ELASTIC=1 on every rank" in output, output
