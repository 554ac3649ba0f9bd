"""torch.distributed.shrink_group, and hooks of aborts and completed calls."""

import datetime
import os
import pickle
import signal
import threading
import time

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend as C10dBackend

from groups import outcomes_of, run_group

pytestmark = pytest.mark.skipif(not hasattr(dist, "_reconfigure"), reason="before PyTorch 2.14")
transports = pytest.mark.parametrize("transport", ["shm", "tcp"])


def expect_sum(size, group=None):
    x = torch.full((1000,), float(dist.get_rank(group) + 1))
    dist.all_reduce(x, group=group)
    assert (x == size * (size + 1) / 2).all(), x


def shrinks(excluded):
    old_rank, size = dist.get_rank(), dist.get_world_size()
    expect_sum(size)
    if old_rank in excluded:
        return None
    dist.shrink_group(excluded)
    assert dist.get_world_size() == size - len(excluded)
    expect_sum(size - len(excluded))
    return dist.get_rank()


@transports
def test_shrinks(transport):
    assert run_group(4, shrinks, [1, 3], transport=transport) == [0, None, 1, None]
    assert run_group(3, shrinks, [0], transport=transport) == [None, 0, 1]


def shrinks_a_part():
    pair = dist.new_group([0, 1, 2])
    if dist.get_rank() < 2:
        pair = dist.shrink_group([2], pair)
        expect_sum(2, pair)
    expect_sum(3)  # the default group is as it was


def test_shrinks_a_group_of_new_group():
    run_group(3, shrinks_a_part)


def shrinks_after_a_death(flags):
    if dist.get_rank() == 1:
        dist.barrier()  # all have joined
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(dist.DistBackendError, match="rank 1"):
        while True:
            dist.barrier()
    dist.shrink_group([1], shrink_flags=flags)
    expect_sum(2)
    return dist.get_rank()


@pytest.mark.parametrize("flags", [0, 1])
def test_shrinks_after_a_death(flags):
    outcomes = outcomes_of(3, shrinks_after_a_death, flags)
    assert outcomes == [("returned", 0), ("died", -9), ("returned", 1)]


def shrinks_without_rank_0():
    if dist.get_rank() == 1:
        within = C10dBackend.Options("ropewalk", timeout=datetime.timedelta(seconds=1))
        with pytest.raises(dist.DistBackendError, match="rank 0 of the group has not come"):
            dist.shrink_group([2], pg_options=within)
    expect_sum(3)


def test_shrinking_waits_no_longer_than_its_timeout():
    run_group(3, shrinks_without_rank_0)


def shrinks_and_aborts():
    """Where a rank hangs, and another waits for it."""
    if dist.get_rank() == 2:
        time.sleep(3)
        with pytest.raises(dist.DistBackendError, match="abort"):
            dist.all_reduce(torch.ones(3))
        return
    work = dist.all_reduce(torch.ones(3), async_op=True)
    store = dist.distributed_c10d._get_default_store()
    store.set(f"begun by {dist.get_rank()}", "")
    store.wait(["begun by 0", "begun by 1"])  # neither aborts what the other has yet to begin
    dist.shrink_group([2], shrink_flags=dist.distributed_c10d.SHRINK_ABORT)
    with pytest.raises(dist.DistBackendError, match="abort"):
        work.wait()
    expect_sum(2)


def test_shrinks_and_aborts():
    run_group(3, shrinks_and_aborts)


def hooks(event):
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert backend.supports_abort_hooks
    called, removed = threading.Event(), threading.Event()
    backend.register_abort_hook(1, called.set)
    backend.register_abort_hook(2, removed.set)
    backend.unregister_abort_hook(2)
    dist.barrier()
    if event == "abort":
        backend.abort()
    elif dist.get_rank() == 0:
        with pytest.raises(dist.DistBackendError, match="timeout"):
            dist.all_reduce(torch.ones(3))
    else:
        time.sleep(2)
        return
    assert called.wait(20) and not removed.is_set()


@pytest.mark.parametrize("event", ["abort", "timeout"])
def test_abort_hooks(event):
    run_group(2, hooks, event, timeout_s=1 if event == "timeout" else 30)


def recorded():
    """What PyTorch's flight recorder has of the last calls: (name, state)."""
    dump = torch._C._distributed_c10d._dump_fr_trace(backend="ropewalk", includeStackTraces=False)
    return [(one["profiling_name"].split(":")[1], one["state"])
            for one in pickle.loads(dump)["entries"]]


def completes():
    x = torch.ones(3)
    dist.all_reduce(x)
    dist.broadcast(x, 0, async_op=True).wait()
    dist.all_gather_into_tensor(torch.empty(6), x, async_op=True).get_future().wait()
    before = recorded()[-3:]
    assert [state for _, state in before] == ["completed"] * 3, before
    if dist.get_rank() == 0:
        failed = dist.irecv(x, 1)
        dist.group.WORLD._get_backend(torch.device("cpu")).abort()
        with pytest.raises(dist.DistBackendError):
            failed.wait()
        assert recorded()[-1][1] != "completed"


def test_the_flight_recorder_sees_calls_complete():
    run_group(2, completes)
