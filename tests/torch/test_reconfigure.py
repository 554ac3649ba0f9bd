"""A process group gets other members: c10d's reconfigure, with handles that pass through its store."""

import datetime
import os
import signal
import time

import pytest
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from groups import outcomes_of, run_group

pytestmark = pytest.mark.skipif(not hasattr(dist, "_reconfigure"), reason="before PyTorch 2.14")
transports = pytest.mark.parametrize("transport", ["shm", "tcp"])
TIMEOUT = datetime.timedelta(seconds=30)


class Member:
    """A process that may be in the group; `number` stays what it was at first."""

    def __init__(self):
        self.number, self.count = dist.get_rank(), dist.get_world_size()
        self.store = distributed_c10d._get_default_store()

    def handles(self, key, members=None):
        """Those of the members, or of all; called by each of them."""
        self.store.set(f"{key}/{self.number}", dist._get_reconfigure_handle())
        return [self.store.get(f"{key}/{one}").decode()
                for one in (range(self.count) if members is None else members)]

    def meet_others(self, key, members=None):
        """All together, with whatever came before."""
        self.store.add(key, 1)
        while self.store.add(key, 0) < (self.count if members is None else len(members)):
            time.sleep(0.01)


def reconfigure(uuid, handles, timeout=TIMEOUT):
    dist._reconfigure(uuid, handles, timeout=timeout).wait()


def expect_group(rank, size):
    assert (dist.get_rank(), dist.get_world_size()) == (rank, size)
    x = torch.full((1000,), float(rank + 1))
    dist.all_reduce(x)
    assert (x == size * (size + 1) / 2).all(), x


def run(size, body, *arguments, **options):
    return run_group(size, body, *arguments, enable_reconfigure=True, **options)


def begins():
    member = Member()
    backend = dist.get_backend_impl(dist.group.WORLD, torch.device("cpu"))
    assert dist._supports_reconfigure() and backend.supports_reconfigure
    with pytest.raises(dist.DistBackendError, match="all_reduce: .* before the first reconfigure"):
        dist.all_reduce(torch.ones(3))
    assert dist._get_reconfigure_handle() == dist._get_reconfigure_handle()
    reconfigure(1, member.handles("first"))
    expect_group(member.number, member.count)
    rank, size = dist.get_rank(), dist.get_world_size()
    got = torch.zeros(5)
    works = [dist.isend(torch.full((5,), float(rank)), (rank + 1) % size),
             dist.irecv(got, (rank - 1) % size)]
    for work in works:
        work.wait()
    assert (got == (rank - 1) % size).all()


@transports
def test_first_members(transport):
    run(3, begins, transport=transport)


def excludes(number):
    member = Member()
    reconfigure(1, member.handles("first"))
    others = [one for one in range(member.count) if one != number]
    everyone = member.handles("second")
    if member.number == number:  # it is still in the group that all others have left
        member.store.wait(["done"])
        with pytest.raises(dist.DistBackendError, match="all_reduce"):
            dist.all_reduce(torch.ones(3))
        return
    reconfigure(2, [everyone[one] for one in others])
    expect_group(others.index(member.number), len(others))
    x = torch.full((4,), float(dist.get_rank()))
    dist.broadcast(x, group_src=1)
    assert (x == 1).all()
    member.store.set("done", "")


@transports
@pytest.mark.parametrize("number", [1, 2])
def test_a_member_is_left_out(number, transport):
    run(3, excludes, number, transport=transport)


def alone_and_together():
    member = Member()
    for uuid in (10, 20):
        reconfigure(uuid + member.number, [dist._get_reconfigure_handle()])
        expect_group(0, 1)
        reconfigure(uuid + 5, member.handles(f"all {uuid}"))
        expect_group(member.number, member.count)
    reconfigure(30, member.handles("the same again"))
    expect_group(member.number, member.count)
    reconfigure(31, set(member.handles("a set")))
    expect_group(member.number, member.count)
    order = member.handles("another order")[::-1]
    reconfigure(32, order)
    expect_group(member.count - 1 - member.number, member.count)


def test_alone_and_together_again():
    run(3, alone_and_together)


def late():
    member = Member()
    if member.number < 2:
        reconfigure(1, member.handles("two", [0, 1]))
        expect_group(member.number, 2)
    reconfigure(2, member.handles("all"))
    expect_group(member.number, member.count)


def test_a_member_joins_late():
    run(3, late)


def in_parts():
    member = Member()
    mine = [one for one in range(member.count) if (one < 2) == (member.number < 2)]
    reconfigure(1 + mine[0], member.handles("parts", mine))
    expect_group(mine.index(member.number), len(mine))
    reconfigure(5, member.handles("whole"))
    expect_group(member.number, member.count)
    reconfigure(6 + mine[0], member.handles("parts again", mine))
    expect_group(mine.index(member.number), len(mine))


@transports
def test_groups_merge_and_split(transport):
    run(4, in_parts, transport=transport)


def one_for_another():
    member = Member()
    first, second = [0, 1, 2], [3, 0, 2]
    if member.number in first:
        reconfigure(1, member.handles("first", first))
        expect_group(member.number, 3)
    if member.number in second:
        reconfigure(2, member.handles("second", second))
        expect_group(second.index(member.number), 3)


@transports
def test_grows_and_shrinks_in_one_step(transport):
    run(4, one_for_another, transport=transport)


def survives(victim):
    member = Member()
    others = [one for one in range(member.count) if one != victim]
    reconfigure(1, member.handles("first"))
    if member.number == victim:
        dist.barrier()  # all have joined
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(dist.DistBackendError, match=f"rank {victim}"):
        while True:
            dist.barrier()
    reconfigure(2, member.handles("second", others))
    expect_group(others.index(member.number), 2)
    return "went on"


@transports
@pytest.mark.parametrize("victim", [0, 1])
def test_a_member_is_killed(transport, victim):
    outcomes = outcomes_of(3, survives, victim, enable_reconfigure=True, transport=transport)
    assert outcomes.pop(victim) == ("died", -9)
    assert outcomes == [("returned", "went on")] * 2


def after_abort():
    member = Member()
    reconfigure(1, member.handles("first"))
    dist.get_backend_impl(dist.group.WORLD, torch.device("cpu")).abort()
    with pytest.raises(dist.DistBackendError, match="aborted"):
        dist.all_reduce(torch.ones(3))
    reconfigure(2, member.handles("second"))
    expect_group(member.number, member.count)


def test_after_abort():
    run(3, after_abort)


def with_calls_under_way():
    member = Member()
    reconfigure(1, member.handles("first"))
    got = torch.zeros(3)
    pending = dist.irecv(got, (member.number + 1) % 3)
    reconfigure(2, member.handles("second"))
    with pytest.raises(dist.DistBackendError, match="recv.*(made anew|reconfigured)"):
        pending.wait()
    expect_group(member.number, member.count)


def test_calls_under_way_fail():
    run(3, with_calls_under_way)


def refused():
    member = Member()
    uuid = 7 + member.number
    reconfigure(uuid, [dist._get_reconfigure_handle()])
    own = dist._get_reconfigure_handle()
    with pytest.raises(RuntimeError, match=f"uuid {uuid} was already used"):
        reconfigure(uuid, [own])
    with pytest.raises(RuntimeError, match="each handle once"):
        reconfigure(100, [own, own])
    with pytest.raises(RuntimeError, match="no handle of ropewalk"):
        reconfigure(100, [own, "gloo:0"])
    with pytest.raises(RuntimeError, match="one handle at least"):
        reconfigure(100, [])
    foreign = [one for one in member.handles("all") if one != own]
    with pytest.raises(RuntimeError, match="handle is not among"):
        reconfigure(100, foreign)
    expect_group(0, 1)
    reconfigure(100, member.handles("all"))
    with pytest.raises(RuntimeError, match="handle is not among"):  # it has served
        reconfigure(101, [own])
    expect_group(member.number, member.count)


def test_refusals():
    run(2, refused)


def lacks_one():
    member = Member()
    if member.number < 2:
        reconfigure(1, member.handles("two", [0, 1]))
    everyone = member.handles("all")
    if member.number == 2:  # it does not come
        return
    with pytest.raises(dist.DistBackendError, match="reconfigure"):
        reconfigure(2, everyone, datetime.timedelta(seconds=1))
    expect_group(member.number, 2)  # as it was
    reconfigure(3, everyone[:2])    # with the handles of the failed try
    expect_group(member.number, 2)


def test_a_member_does_not_come():
    run(3, lacks_one)


def of_two_minds():
    """Members that pass different lists do not meet, whoever is first on both."""
    member = Member()
    everyone = member.handles("all")
    if member.number < 2:
        reconfigure(1, everyone[:2])
        expect_group(member.number, 2)
    else:
        with pytest.raises(dist.DistBackendError, match="meets others.*same uuid and handles|reconfigure"):
            reconfigure(1, everyone, datetime.timedelta(seconds=1))
    member.meet_others("done")


def test_members_that_disagree():
    run(3, of_two_minds)


def groups_beside():
    """Groups of new_group may be made anew, too."""
    member = Member()
    reconfigure(1, member.handles("first"))
    pair = dist.new_group([0, 2])
    if member.number == 1:
        return
    x = torch.ones(10)
    dist.all_reduce(x, group=pair)
    assert (x == 2).all()
    member.store.set(f"pair/{member.number}", dist._get_reconfigure_handle(pair))
    handles = [member.store.get(f"pair/{one}").decode() for one in (2, 0)]
    dist._reconfigure(5, handles, group=pair, timeout=TIMEOUT).wait()
    assert pair.rank() == (1 if member.number == 0 else 0)
    dist.all_reduce(x, group=pair)
    assert (x == 4).all()


def test_groups_of_new_group():
    run(3, groups_beside)
