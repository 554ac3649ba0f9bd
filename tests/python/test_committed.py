"""all_reduce_committed: on all ranks that are left, or on none."""

import os
import signal
import threading

import numpy as np
import pytest

import ropewalk
from ranks import Job, run_ranks


def sums(comm):
    x = np.arange(10) + comm.rank
    assert comm.all_reduce_committed(x) is x
    assert (x == 3 * np.arange(10) + 3).all()
    assert comm.all_reduce_committed(np.array([comm.rank]), "max", timeout=10)[0] == 2
    with pytest.raises(ropewalk.InvalidArgumentError):
        comm.split(0).all_reduce_committed(x)


def test_it_sums(transport):
    run_ranks(3, sums, transport=transport)


def commits_until_someone_dies(comm, victim):
    committed = 0
    while comm.size == 4:
        if comm.rank == victim and committed == 20:
            threading.Timer(0.005, os.kill, (os.getpid(), signal.SIGKILL)).start()
        x = np.full(1000, committed + comm.rank)
        try:
            comm.all_reduce_committed(x)
            assert (x == 4 * committed + 6).all()
            committed += 1
        except ropewalk.Error as error:
            assert error.is_survivable
            assert (x == committed + comm.rank).all()
            comm = comm.shrink()
    counts = comm.all_gather(np.array([committed])).ravel().tolist()
    comm.close()
    return counts


@pytest.mark.parametrize("victim", [0, 2])
def test_all_that_are_left_have_committed_as_much(transport, victim):
    job = Job(4, commits_until_someone_dies, victim, transport=transport)
    outcomes = job.outcomes()
    job.end()
    assert outcomes.pop(victim)[0] == "died"
    for outcome, counts in outcomes:
        assert outcome == "returned", counts
        assert counts == [counts[0]] * 3 and counts[0] >= 20
