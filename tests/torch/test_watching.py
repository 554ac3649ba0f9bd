"""Calls that end while nobody waits for them: futures, callbacks, dropped handles, any source."""

import datetime
import threading
import time

import pytest
import torch
import torch.distributed as dist

from groups import run_group

transports = pytest.mark.parametrize("transport", ["shm", "tcp"])
LARGE = 300_000


def waits_within_a_callback():
    """As the hooks for PowerSGD and quantized gradients do."""
    first, second = torch.ones(8), torch.ones(LARGE)

    def then(_):
        return dist.all_reduce(second, async_op=True).get_future().wait()

    done = dist.all_reduce(first, async_op=True).get_future().then(then).wait()
    assert (done[0] == 2).all() and (second == 2).all()


@transports
def test_a_callback_may_wait_for_another_call(transport):
    run_group(2, waits_within_a_callback, transport=transport)


def needs_a_lock_that_a_waiting_thread_holds():
    """The thread that waits for one call may be the one that finishes another."""
    lock = threading.Lock()

    def then(_):
        with lock:
            return None

    for _ in range(5):
        if dist.get_rank() == 1:
            time.sleep(0.2)  # the other is told of nothing before it waits
            dist.all_reduce(torch.ones(8))
            dist.all_reduce(torch.ones(LARGE))
            continue
        with lock:
            done = dist.all_reduce(torch.ones(8), async_op=True).get_future().then(then)
            dist.all_reduce(torch.ones(LARGE))
        done.wait()


@transports
def test_a_callback_does_not_run_in_a_thread_that_waits_for_another_call(transport):
    run_group(2, needs_a_lock_that_a_waiting_thread_holds, transport=transport)


def later_call_first(drops):
    other = 1 - dist.get_rank()
    late, sums = torch.zeros(4), torch.ones(4)
    if dist.get_rank() == 0:
        work = dist.irecv(late, other)
        if drops:
            del work
        else:
            future = work.get_future()
    dist.all_reduce(sums, async_op=True).get_future().wait()
    assert (sums == 2).all()
    if dist.get_rank() == 1:  # only now, so that the receive cannot have ended before
        dist.send(torch.full((4,), 7.0), other)
    elif not drops:
        assert (future.wait()[0] == 7).all()
    dist.barrier()
    deadline = time.monotonic() + 10
    while dist.get_rank() == 0 and not (late == 7).all():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("drops", [False, True])
def test_a_call_that_has_not_ended_holds_up_no_other(drops):
    run_group(2, later_call_first, drops)


def crossing_from_any_source():
    """Both send what does not fit into a slot before either waits."""
    other = 1 - dist.get_rank()
    got = torch.zeros(LARGE)
    if dist.get_rank() == 0:
        work = dist.irecv(got)
        dist.send(torch.full((LARGE,), 1.0), other)
        work.wait()
        assert work._source_rank() == other
    else:
        dist.send(torch.full((LARGE,), 2.0), other)
        dist.recv(got, other)
    assert (got == (2 if dist.get_rank() == 0 else 1)).all()


@transports
def test_a_receive_from_any_source_is_posted_when_it_is_called(transport):
    run_group(2, crossing_from_any_source, transport=transport)


def many_from_any_source():
    ranks = dist.get_world_size()
    if dist.get_rank() != 0:
        for _ in range(10):
            dist.send(torch.full((3,), float(dist.get_rank())), 0)
        return
    tensors = [torch.zeros(3) for _ in range(10 * (ranks - 1))]
    works = [dist.irecv(tensor) for tensor in tensors]
    futures = [work.get_future() for work in works[::2]]
    for work in reversed(works):
        work.wait()
    torch.futures.wait_all(futures)
    sources = [work._source_rank() for work in works]
    assert [int(tensor[0]) for tensor in tensors] == sources
    assert sorted(sources) == sorted(list(range(1, ranks)) * 10)


def test_receives_from_any_source_share_out_the_messages():
    run_group(4, many_from_any_source)


def ends_with_a_receive():
    keep = [dist.irecv(torch.zeros(3))]
    dist.irecv(torch.zeros(3))
    dist.all_reduce(torch.ones(1))
    began = time.monotonic()
    dist.destroy_process_group()
    assert time.monotonic() - began < 20
    with pytest.raises(Exception, match="destroyed|left the job"):
        keep[0].wait()
    keep.clear()


def test_a_receive_that_nobody_sends_to_ends_with_the_group():
    run_group(2, ends_with_a_receive)


def ends_with_a_receive_from(how):
    """Rank 1 is alive but does not send, and does not leave."""
    if dist.get_rank() == 1:
        with pytest.raises(dist.DistBackendError, match="destroyed while calls were under way"):
            dist.recv(torch.zeros(1), 0)
        return None
    work = dist.irecv(torch.zeros(3), 1)
    future = work.get_future() if how == "future" else None
    if how != "kept":
        del work
    began = time.monotonic()
    dist.destroy_process_group()
    if future is not None:
        with pytest.raises(Exception, match="recv.*destroyed"):
            future.wait()
    work = None
    return time.monotonic() - began


@pytest.mark.parametrize("how", ["dropped", "future", "kept"])
def test_a_receive_whose_rank_does_not_send_ends_with_the_group(how):
    seconds, _ = run_group(2, ends_with_a_receive_from, how)
    assert 4.5 < seconds < 12


def keeps_handles():
    """Of calls that nobody has asked whether they have ended."""
    kept = [dist.all_reduce(torch.ones(8), async_op=True) for _ in range(100)]
    dist.barrier()
    began = time.monotonic()
    dist.destroy_process_group()
    assert all(work.is_success() and work.is_completed() for work in kept)
    return time.monotonic() - began


def test_calls_that_have_ended_do_not_hold_up_the_end():
    assert max(run_group(2, keeps_handles)) < 3


def spends_little_at_the_end():
    dist.irecv(torch.zeros(3), 1 - dist.get_rank())
    began = time.process_time()
    dist.destroy_process_group()
    return time.process_time() - began


def test_waiting_for_the_end_of_calls_takes_no_cpu():
    assert max(run_group(2, spends_little_at_the_end)) < 1.5


def waits_long_in_a_thread():
    """For longer than the group's timeout, while the call has a future too."""
    other = 1 - dist.get_rank()
    if dist.get_rank() == 0:
        late = torch.zeros(4)
        work = dist.irecv(late, other)
        future = work.get_future()
        thread = threading.Thread(target=work.wait, args=(datetime.timedelta(seconds=20),))
        thread.start()
    time.sleep(4)
    began = time.monotonic()
    dist.all_reduce(torch.ones(4), async_op=True).get_future().wait()
    seconds = time.monotonic() - began
    if dist.get_rank() == 1:
        time.sleep(3)
        dist.send(torch.full((4,), 7.0), other)
    else:
        future.wait()
        thread.join()
        assert (late == 7).all()
    return seconds


def test_a_longer_wait_of_a_user_holds_up_no_future():
    assert max(run_group(2, waits_long_in_a_thread, timeout_s=3)) < 2


def inference_mode():
    with torch.inference_mode():
        parts = [torch.zeros(5) for _ in range(2)]
        work = dist.all_gather(parts, torch.full((5,), float(dist.get_rank())), async_op=True)
    work.wait()
    assert [int(part[0]) for part in parts] == [0, 1]


def test_tensors_of_inference_mode_are_filled():
    run_group(2, inference_mode)


def polls():
    for _ in range(200):
        tensor = torch.ones(1000)
        work = dist.all_reduce(tensor, async_op=True)
        future = work.get_future()
        while not work.is_completed():
            pass
        future.wait()
        assert work.is_success() and (tensor == 2).all()


def test_polling_and_futures_do_not_meet():
    run_group(2, polls)
