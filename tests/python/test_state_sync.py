"""Ranks that lack the state get it from those who have it."""

import os
import signal

import numpy as np
import pytest

import ropewalk
from ranks import Job, run_ranks

SHAPES = {"weights": (300_000,), "bias": (7,), "empty": (0,)}


def state_of(seed):
    return {name: np.arange(np.prod(shape), dtype=np.float32).reshape(shape) + seed for name, shape in SHAPES.items()}


def has_state_of(state, seed):
    return all((state[name] == array).all() for name, array in state_of(seed).items())


def gets_the_newest(comm):
    state = state_of(comm.rank)
    report = comm.sync_state(state, comm.rank % 3)
    assert has_state_of(state, 2)
    assert report.revision == 2 and report.sources == [2] and len(report.hash) == 32
    assert report.changed == ([] if comm.rank == 2 else ["weights", "bias"])
    assert report.bytes_received == (0 if comm.rank == 2 else 4 * 300_007)


def test_the_newest_state_goes_to_all(transport):
    run_ranks(4, gets_the_newest, transport=transport)


def gets_others(comm):
    state = state_of(min(comm.rank, 2))
    assert comm.sync_state(state, 0, source="majority").sources == [2, 3]
    assert has_state_of(state, 2)
    state = state_of(comm.rank)
    assert comm.sync_state(state, 0, source=1, timeout=30).sources == [1]
    assert has_state_of(state, 1)


def test_it_may_be_that_of_most_ranks_or_of_one():
    run_ranks(4, gets_others)


def goes_on_meanwhile(comm):
    has_state = comm.rank != 2
    state = state_of(5 if has_state else 0)
    sync = comm.start_sync_state(state, int(has_state))
    if has_state:
        for array in state.values():
            array[...] = -1
    steps = 0
    while steps < 10 or comm.all_reduce(np.array([not sync.done()], np.int32))[0] > 0:
        steps += 1
        assert comm.all_reduce(np.ones(100))[0] == 3
    assert sync.wait() is not None and sync.wait(1).revision == 1
    assert has_state or has_state_of(state, 5)


def test_sources_go_on_with_other_arrays_meanwhile(transport):
    run_ranks(3, goes_on_meanwhile, transport=transport)


def is_refused(comm):
    state = state_of(0)
    if comm.rank == 1:
        state["bias"] = np.zeros(8, np.float32)
    with pytest.raises(ropewalk.MismatchError, match='"bias" of 32 bytes, of rank 0 "bias" of 28'):
        comm.start_sync_state(state, 0)
    state = state_of(comm.rank)
    with pytest.raises(ropewalk.MismatchError, match="both have revision 0"):
        comm.sync_state(state, 0)
    for source in ("oldest", 2, -1):
        with pytest.raises(ropewalk.InvalidArgumentError):
            comm.sync_state(state, 0, source=source)
    state["weights"].flags.writeable = False
    with pytest.raises(ropewalk.InvalidArgumentError, match="weights"):
        comm.sync_state(state, 0)
    comm.barrier()


def test_what_differs_is_named():
    run_ranks(2, is_refused)


def loses_a_source(comm):
    has_state = comm.rank < 2
    state = {"state": np.full(20_000_000, has_state, np.uint8)}
    with pytest.raises(ropewalk.PeerLostError) as lost:
        sync = comm.start_sync_state(state, int(has_state))
        if comm.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        sync.wait()
        comm.barrier()
    assert lost.value.peer == 1
    comm = comm.shrink()
    # Others are among them where all that rank 1 had to send has left it before it died.
    assert 0 in comm.sync_state(state, int(has_state)).sources
    assert state["state"].all()
    comm.close()


def test_those_who_are_left_begin_anew(transport):
    job = Job(4, loses_a_source, transport=transport, progress_thread=False)
    outcomes = job.outcomes()
    job.end()
    assert outcomes.pop(1)[0] == "died"
    assert outcomes == [("returned", None)] * 3, outcomes[0][1]
