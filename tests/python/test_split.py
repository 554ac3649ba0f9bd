"""Parts of a communicator."""

import gc
import itertools
import time

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


def exchange_by_files(folder, ranks, own):
    """What Communicator.create_group asks for."""
    rounds = itertools.count()

    def exchange(text):
        turn = next(rounds)
        mine = folder / f"{turn}-{own}"
        mine.with_suffix(".new").write_text(text)
        mine.with_suffix(".new").rename(mine)
        theirs = [folder / f"{turn}-{rank}" for rank in ranks]
        while not all(path.exists() for path in theirs):
            time.sleep(0.001)
        return [path.read_text() for path in theirs]
    return exchange


def a_group_of_two(comm, folder):
    ranks = [2, 0]
    if comm.rank in ranks:
        group = comm.create_group(ranks, exchange_by_files(folder, ranks, comm.rank), timeout=20)
        assert group.size == 2 and group.rank == ranks.index(comm.rank)
        assert group.all_reduce(np.ones(3))[0] == 2
        group.close()
    with pytest.raises(ropewalk.InvalidArgumentError, match="no group of rank"):
        comm.create_group([comm.size], lambda text: [text])
    with pytest.raises(ropewalk.Error, match="the exchange gave"):
        comm.create_group([comm.rank], lambda text: [])
    with pytest.raises(ZeroDivisionError):
        comm.create_group([comm.rank], lambda text: 1 / 0)
    assert comm.all_reduce(np.ones(1))[0] == comm.size


def test_a_group_is_made_by_its_members_alone(tmp_path, transport):
    run_ranks(3, a_group_of_two, tmp_path, transport=transport)


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
