"""What goes wrong is told by an exception that names what and who, and soon."""

import builtins
import os
import pickle
import signal
import time

import numpy as np
import pytest

import ropewalk
from ranks import Job, run_ranks

X = np.ones(6, "float32")


def constant(array):
    array.flags.writeable = False
    return array


# (what is called, what the message says)
WRONG = [
    (lambda c: c.all_reduce([1.0]), "x is a list.*numpy array"),
    (lambda c: c.all_reduce(None), "x is None"),
    (lambda c: c.all_reduce(X[::2]), "x is not contiguous.*ascontiguousarray"),
    (lambda c: c.all_reduce(np.ones((3, 3)).T), "x is not contiguous"),
    (lambda c: c.all_reduce(X, out=np.ones(12, "float32")[::2]), "out is not contiguous"),
    (lambda c: c.all_reduce(constant(np.ones(3))), "x is read-only"),
    (lambda c: c.all_reduce(b"bytes"), "x is read-only"),
    (lambda c: c.all_gather(X, constant(np.ones(12, "float32"))), "out is read-only"),
    (lambda c: c.all_reduce(np.ones(3, "bool")), "dtype bool.*uint8"),
    (lambda c: c.all_reduce(np.ones(3, "complex64")), "dtype complex64"),
    (lambda c: c.all_reduce(np.ones(3, ">f4")), "native"),
    (lambda c: c.all_reduce(np.ones(3, "U4")), "x is a"),
    (lambda c: c.all_reduce(np.ones(3, "M8[s]")), "x is a"),
    (lambda c: c.all_reduce(np.datetime64("2020-01-01")), "x is a datetime64"),
    (lambda c: c.all_reduce(X, out=np.ones(6)), "out has dtype float64, but x has float32"),
    (lambda c: c.all_reduce(X, out=np.ones(5, "float32")), "out has 5 elements where 6"),
    (lambda c: c.all_reduce(X, out=X[1:]), "out has 5"),
    (lambda c: c.all_gather(X, np.ones(6, "float32")), "out has 6 elements where 12"),
    (lambda c: c.all_gather(X, counts=[6]), "counts has 1 entries for 2 ranks"),
    (lambda c: c.all_gather(X, counts=[7, 7]), "x has 6 elements where 7.*counts"),
    (lambda c: c.all_gather(X, counts=[6, -1]), "counts has -1"),
    (lambda c: c.reduce_scatter(X), r"x has shape \(6,\).*first dimension is not 2"),
    (lambda c: c.reduce_scatter(X, out=np.ones(2, "float32")), "x has 6 elements where 4"),
    (lambda c: c.all_to_all(X[:5]), "5 elements, which 2 ranks cannot share"),
    (lambda c: c.all_to_all(X, counts=[3, 3], recv_counts=[3]), "recv_counts has 1 entries"),
    (lambda c: c.all_gather(memoryview(X)), "out is None, and x is a memoryview"),
    (lambda c: c.scatter(X, 1 - c.rank), "out is None"),
    (lambda c: c.broadcast(X.copy(), 2), "root 2 is out of range"),
    (lambda c: c.send(X, c.rank), "cannot send to itself"),
    (lambda c: c.recv(constant(np.ones(3)), 1 - c.rank), "x is read-only"),
    (lambda c: c.all_reduce(X, "total"), "op is 'total'.*scaled_sum"),
    (lambda c: c.all_reduce(X, "user"), "op is 'user'"),
    (lambda c: c.all_reduce(np.ones(3, "int8"), ropewalk.scaled_sum(2)), "not defined on int8"),
    (lambda c: c.all_reduce(X, algorithm="fast"), "algorithm is 'fast'"),
    (lambda c: c.allocate(3, "bool"), "dtype is bool"),
    (lambda c: c.allocate(-1), "shape has -1"),
    (lambda c: c.allocate((1 << 40, 1 << 40)), "64 bits"),
    (lambda c: c.all_reduce(X.copy(), async_op=True).wait(-1), "timeout is -1 s"),
]


def refuse_all(comm):
    for call, text in WRONG:
        with pytest.raises(ropewalk.InvalidArgumentError, match=text) as caught:
            call(comm)
        assert caught.value.code == "invalid argument" and isinstance(caught.value, ValueError)
    assert (X == 1).all()
    comm.all_reduce_group([])  # nothing to do is no mistake
    comm.all_reduce(X)  # nothing is broken
    assert (X == 2).all()


def test_wrong_arguments_are_refused(transport):
    run_ranks(2, refuse_all, transport=transport)


def test_wrong_ways_to_join_are_refused():
    for wrong, text in [(dict(rank=2, size=2), "rank"), (dict(timeout=0), "timeout is 0"),
                        (dict(timeout=float("nan")), "nan"),
                        (dict(rank=1, size=2, coordinator="nowhere"), "host:port"),
                        (dict(rank=0, size=2, coordinator="127.0.0.1:4", secure=True), "no job key")]:
        with pytest.raises(ropewalk.InvalidArgumentError, match=text):
            ropewalk.Communicator(**wrong)
    with pytest.raises(ropewalk.UnavailableError, match="pigeon"):
        ropewalk.Communicator(transport="pigeon")
    with pytest.raises(ropewalk.ExhaustedError, match="allocate"):
        ropewalk.Communicator().allocate(1 << 60, "int8")


def test_errors_are_pickled():
    for code, kind in ropewalk.errors._CLASSES.items():
        error = ropewalk.errors.from_failure(code, "rank 2: it failed", 2, [1, 4], "all_reduce #3", "why", "")
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is kind and again.args == error.args and vars(again) == vars(error)
        assert (again.peer, again.peers) == (1, (1, 4))


def after_the_end(comm):
    comm.close()
    with pytest.raises(ropewalk.InvalidArgumentError, match="rank 0: communicator: it is closed"):
        comm.all_reduce(X)


def test_a_closed_communicator_names_its_rank():
    run_ranks(1, after_the_end)


def until_one_dies(comm):
    began = time.monotonic()
    try:
        for turn in range(1_000_000):
            comm.all_reduce(np.ones(1000))
            if comm.rank == 1 and turn == 10:
                os.kill(os.getpid(), signal.SIGKILL)
    except ropewalk.PeerLostError as error:
        return error.peer, error.code, error.rank, str(error), time.monotonic() - began


def test_a_killed_rank_is_named(transport):
    job = Job(3, until_one_dies, transport=transport)
    outcomes = job.outcomes()
    job.end()
    assert outcomes[1] == ("died", -signal.SIGKILL)
    for rank in (0, 2):
        assert outcomes[rank][0] == "returned", outcomes[rank]
        peer, code, noticed_by, text, seconds = outcomes[rank][1]
        assert (peer, code) == (1, "peer lost"), text
        assert noticed_by >= 0 and "rank 1" in text and seconds < 5


def disagree(comm):
    with pytest.raises(ropewalk.MismatchError, match="all_reduce|elements|float") as caught:
        comm.all_reduce(np.ones(10 + comm.rank, "float32"))
    assert caught.value.code == "mismatch" and caught.value.reason and caught.value.operation
    with pytest.raises(ropewalk.MismatchError):
        comm.barrier()


def test_a_mismatch_is_told_to_every_rank(transport):
    run_ranks(3, disagree, transport=transport)


def wait_in_vain(comm):
    if comm.rank == 0:
        time.sleep(1.5)
        with pytest.raises((ropewalk.TimeoutError, ropewalk.PeerLostError)):  # rank 1 may be gone
            comm.barrier()
        return
    began = time.monotonic()
    with pytest.raises(builtins.TimeoutError) as caught:
        comm.all_reduce(X.copy(), async_op=True).wait(0.5)
    assert isinstance(caught.value, ropewalk.Error) and caught.value.code == "timeout"
    assert 0.4 < time.monotonic() - began < 5


def test_a_deadline_ends_a_wait(transport):
    run_ranks(2, wait_in_vain, transport=transport)


def abort(comm):
    with pytest.raises(ropewalk.AbortedError, match="rank 1 aborted the job: no more data"):
        comm.barrier()  # all have joined
        if comm.rank == 1:
            comm.abort("no more data")
        while True:
            comm.barrier()


def test_an_abort_is_told_to_every_rank(transport):
    run_ranks(3, abort, transport=transport)


def abort_at_length(comm):
    """Texts are cut on the way; once a half of a letter then was no text for Python any more."""
    with pytest.raises(ropewalk.AbortedError, match="rank 1 aborted the job: xéé") as caught:
        comm.barrier()
        if comm.rank == 1:
            comm.abort("x" + "é" * 1500 + "\x1b[31m")
        while True:
            comm.barrier()
    assert "\x1b" not in str(caught.value)
    assert "\x1b" not in caught.value.reason


def test_a_long_text_beyond_ascii_is_told_to_every_rank(transport):
    run_ranks(2, abort_at_length, transport=transport)


def leave_by_exception(comm):
    if comm.rank == 1:
        comm.barrier()  # all have joined
        raise LookupError("the data is gone")
    with pytest.raises(ropewalk.AbortedError, match="LookupError: the data is gone"):
        while True:
            comm.barrier()


def test_an_exception_in_a_with_block_is_told_to_every_rank(transport):
    job = Job(3, leave_by_exception, transport=transport)
    outcomes = job.outcomes()
    job.end()
    assert [how for how, _ in outcomes] == ["returned", "raised", "returned"], outcomes
    assert "LookupError" in outcomes[1][1]
