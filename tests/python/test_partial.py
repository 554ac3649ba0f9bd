"""PartialAllReduce: sums of those who come in time."""

import os
import random
import signal
import time

import numpy as np
import pytest

import ropewalk
from ranks import Job, run_ranks


def totals(comm):
    draw = random.Random(comm.rank)
    brought, got, made = np.zeros(100, np.int64), np.zeros(100, np.int64), np.zeros(comm.size, int)
    x = np.empty(100, np.int64)
    calls = draw.randrange(40)
    with ropewalk.PartialAllReduce(comm, 100, "int64") as reducer:
        for _ in range(calls):
            time.sleep(draw.random() / 500)
            x[:] = draw.randrange(1 << 40)
            brought += x
            told = reducer.all_reduce(x, patience=draw.random() / 1000)
            assert told.rounds >= 1 and told.contributions[comm.rank] == 1
            assert told.total == sum(told.contributions)
            got += x
            made += told.contributions
        told = reducer.finish(x)
        got += x
        made += told.contributions
    assert (got == comm.all_reduce(brought)).all()
    assert (made == comm.all_gather(np.array([calls])).ravel()).all()


@pytest.mark.parametrize("size", [1, 4])
def test_every_contribution_is_in_the_sums_of_each_rank_once(transport, size):
    run_ranks(size, totals, transport=transport)


def refuses(comm):
    reducer = ropewalk.PartialAllReduce(comm, 3)
    for x, message in [(np.zeros(4, np.float32), "4 elements"), (np.zeros(3), "float64")]:
        with pytest.raises(ropewalk.InvalidArgumentError, match=message):
            reducer.all_reduce(x, 0)
    x = np.ones(3, np.float32)
    assert reducer.all_reduce(x, patience=1e12).total == 2 == x[0]
    reducer.close()
    reducer.close()
    with pytest.raises(ropewalk.InvalidArgumentError, match="finished"):
        reducer.all_reduce(x, 0)
    with pytest.raises(ropewalk.InvalidArgumentError, match="dtype is float7"):
        ropewalk.PartialAllReduce(comm, 3, "float7")
    ropewalk.PartialAllReduce(comm, 3)  # the communicator ends it


def test_wrong_calls_are_refused():
    run_ranks(2, refuses)


def an_exception_ends_the_others_calls(comm):
    x = np.full(5, comm.rank + 1.0)
    with pytest.raises(RuntimeError if comm.rank == 1 else ropewalk.AbortedError):
        with ropewalk.PartialAllReduce(comm, 5, "float64") as reducer:
            if comm.rank == 1:
                raise RuntimeError("goes")
            reducer.all_reduce(x, patience=30)
    assert (x == comm.rank + 1).all()
    comm.barrier()


def test_an_exception_ends_the_others_calls(transport):
    run_ranks(3, an_exception_ends_the_others_calls, transport=transport)


def goes_on(comm, victim):
    own = comm.rank
    while True:
        try:
            reducer = ropewalk.PartialAllReduce(comm, 1000)
            for step in range(50):
                if own == victim and step == 20:
                    os.kill(os.getpid(), signal.SIGKILL)
                x = np.ones(1000, np.float32)
                told = reducer.all_reduce(x, patience=0.001)
                assert (x == told.total).all()
            reducer.close()
            break
        except ropewalk.Error as error:
            assert error.is_survivable and (x == 1).all()
            comm = comm.shrink()
    size = comm.size
    comm.close()
    return size


@pytest.mark.parametrize("victim", [0, 2])
def test_it_is_made_anew_without_a_killed_rank(transport, victim):
    job = Job(4, goes_on, victim, transport=transport)
    outcomes = job.outcomes()
    job.end()
    assert outcomes.pop(victim)[0] == "died"
    assert outcomes == [("returned", 3)] * 3
