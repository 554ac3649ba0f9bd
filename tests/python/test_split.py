"""Parts of a communicator."""

import gc
import itertools

import numpy as np
import pytest

import ropewalk
from ranks import run_ranks


def halves(comm):
    part = comm.split(comm.rank % 2, -comm.rank)
    members = [rank for rank in range(comm.size) if rank % 2 == comm.rank % 2][::-1]
    assert part.size == len(members) and members[part.rank] == comm.rank
    assert isinstance(part, ropewalk.Communicator) and not part.closed
    assert (part.all_gather(np.array([comm.rank])).ravel() == members).all()
    comm.close()  # a part may outlive the whole
    assert part.all_reduce(np.ones(3))[0] == len(members)
    part.close()


def test_split(size, transport):
    run_ranks(size, halves, transport=transport)


def some_take_no_part(comm):
    part = comm.split(None if comm.rank == 1 else 7)
    if comm.rank == 1:
        assert part is None
    else:
        assert part.size == comm.size - 1 and part.all_reduce(np.ones(2))[0] == part.size
        part.close()


def test_a_rank_takes_no_part():
    run_ranks(3, some_take_no_part)


def wrong(comm):
    for call, text in [(lambda: comm.split(-1), "split: color has -1.*0 or more"),
                       (lambda: comm.split(1 << 31), "color is 2147483648.*32 bits"), (lambda: comm.split(0, 1 << 40), "key is")]:
        with pytest.raises(ropewalk.InvalidArgumentError, match=text):
            call()
    with pytest.raises(TypeError):
        comm.split("red")
    comm.barrier()  # nothing was sent


def test_wrong_colors_are_refused():
    run_ranks(2, wrong)


def failures_stay_apart(comm):
    part = comm.split(0)
    if comm.rank == 0:
        part.abort("no more data")
    with pytest.raises(ropewalk.AbortedError, match="no more data"):
        while True:
            part.barrier()
    comm.barrier()


def test_a_part_fails_alone():
    run_ranks(3, failures_stay_apart)


def every_order(comm, closes):
    """Of what a communicator has given out, and itself."""
    names = ["comm", "work", "plan", "memory", "sgd"]
    for order in itertools.permutations(names):
        part = comm.split(0)
        memory = part.allocate(100)
        plan = part.plan_all_reduce(memory)
        plan.start()
        kept = {"comm": part, "work": part.all_reduce(np.ones(1000), async_op=True), "plan": plan,
                "memory": memory, "sgd": ropewalk.AllReduceSGD(part)}
        kept["sgd"].sum_gradients([np.ones(4)])
        if closes:
            part.close()
        del part, memory, plan
        for name in order:
            del kept[name]
            gc.collect(0)
    comm.barrier()


@pytest.mark.parametrize("closes", [False, True])
def test_no_order_of_destruction_crashes(closes):
    run_ranks(2, every_order, closes)
