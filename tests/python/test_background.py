"""Work, Plan, groups and registered memory."""

import gc
import resource
import threading
import time
import weakref

import numpy as np
import pytest

import ropewalk
from ranks import run_ranks


class Watched(np.ndarray):
    """An array whose end can be seen."""


def ones(count=1000):
    return np.ones(count, "float32")


def works(comm):
    first, second = ones(), ones()
    work, other = comm.all_reduce(first, async_op=True), comm.all_reduce(second, async_op=True)
    while not work.test():
        pass
    assert work.test() and work.wait() is first and work.wait(1.0) is first
    assert other.wait(20.0) is second and (second == comm.size).all()
    rows = comm.all_gather(ones(3), async_op=True).wait()
    assert rows.shape == (comm.size, 3)
    assert isinstance(work, ropewalk.Work)


def unnamed_array(comm):
    x = ones(1 << 20).view(Watched)
    seen = weakref.ref(x)
    work = comm.all_reduce(x, async_op=True)
    del x
    gc.collect()
    assert seen() is not None
    assert (work.wait() == comm.size).all()
    del work
    gc.collect()
    assert seen() is None
    comm.all_reduce(ones(1 << 20), async_op=True)  # dropped at once: waits by itself
    assert (comm.all_reduce(ones()) == comm.size).all()


def plans(comm):
    x = ones()
    plan = comm.plan_all_reduce(x, "sum")
    assert plan.algorithm and plan.test()
    for _ in range(100):
        x[:] = comm.rank
        assert plan.run() is x
        assert (x == sum(range(comm.size))).all()
    x[:] = 1
    plan.start()


def plan_started(comm):
    x, out = ones(), np.zeros(1000, "float32")
    plan = comm.plan_all_reduce(x, "avg", out)
    plan.start()
    assert plan.wait(20.0) is out
    assert (out == 1).all() and plan.test()


def groups(comm):
    arrays = [ones(count) for count in (1, 10, 100_000, 0)] + [np.ones(3, "int64")]
    assert comm.all_reduce_group(arrays) is arrays
    assert all((x == comm.size).all() for x in arrays)
    assert comm.all_reduce_group(arrays, "avg", async_op=True).wait() is arrays
    assert all((x == comm.size).all() for x in arrays)


class Told:
    """What on_done was told."""

    def __init__(self, then=None):
        self.ended, self.errors, self._then = threading.Event(), [], then

    def __call__(self, error):
        if self._then:
            self._then()
        self.errors.append(error)
        self.ended.set()


def told_of_the_end(comm):
    x = ones(100_000)
    told = Told(then=lambda: comm.all_reduce(x))
    work = comm.all_reduce(x, async_op=True)
    work.on_done(told)
    assert told.ended.wait(20) and told.errors == [None]
    assert (x == comm.size ** 2).all()
    late = Told()
    work.on_done(late)
    assert late.errors == [None]


def registered(comm):
    x = comm.allocate((3, 4), "float64")
    assert type(x) is np.ndarray and x.shape == (3, 4) and x.dtype == np.float64
    assert not x.any() and x.flags.writeable and x.ctypes.data % 4096 == 0
    x += comm.rank
    comm.all_reduce(x)
    assert (x == sum(range(comm.size))).all()
    assert comm.allocate(7).dtype == np.float32 and comm.allocate((), np.int8).shape == ()
    assert comm.allocate(0).size == 0
    half = comm.allocate(16, "bfloat16")
    comm.all_reduce(half, "max")
    return x[1:]  # a view of memory, pickled after the job was left


@pytest.mark.parametrize("body", [works, unnamed_array, plans, plan_started, groups, told_of_the_end,
                                  registered])
def test_in_the_background(body, size, transport):
    run_ranks(size, body, transport=transport)


def told_of_a_failure(comm):
    """Rank 1 does not call in time."""
    if comm.rank == 0:
        told = Told()
        work = comm.all_reduce(ones(), async_op=True)
        work.on_done(told, timeout=0.1)
        assert told.ended.wait(20) and isinstance(told.errors[0], ropewalk.TimeoutError)
    else:
        time.sleep(1)
    with pytest.raises(ropewalk.TimeoutError):
        comm.barrier()


def test_a_callback_is_told_of_the_deadline():
    run_ranks(2, told_of_a_failure)


def test_memory_is_readable_after_leaving():
    for view in run_ranks(3, registered):
        assert (view == 3).all()


def left_behind(comm):
    x, memory = ones(1 << 18), comm.allocate(1000)
    kept = [comm.all_reduce(x, async_op=True), comm.plan_all_reduce(memory), memory,
            ropewalk.AllReduceSGD(comm)]
    kept[1].start()
    kept[3].sum_gradients([ones()])
    comm.close()
    assert kept[0].wait() is x and (x == comm.size).all()
    for call in (kept[1].run, kept[1].start, kept[1].test, kept[1].wait, comm.barrier,
                 lambda: comm.all_reduce(x), lambda: comm.allocate(1), lambda: comm.abort("no"),
                 lambda: kept[3].sum_gradients([ones()])):
        with pytest.raises(ropewalk.InvalidArgumentError, match="closed"):
            call()
    comm.close()
    assert comm.closed and comm.size >= 1 and "closed" in repr(comm)
    memory[:] = 1
    del comm


def test_closing_first_harms_nothing(size, transport):
    run_ranks(size, left_behind, transport=transport)


def other_threads_run(comm):
    counted, end = [0], threading.Event()

    def count():
        while not end.is_set():
            counted[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    if comm.rank == 0:
        end.wait(0.5)
    before = counted[0]
    comm.barrier()
    went_on = counted[0] - before
    end.set()
    thread.join()
    return went_on


def test_waiting_releases_the_interpreter():
    assert run_ranks(2, other_threads_run)[1] > 1000


def repeat(comm):
    def some():
        for _ in range(200):
            x = ones(1 << 14)
            comm.all_reduce(x)
            comm.all_gather(x)
            comm.all_reduce(x, async_op=True).wait()
            comm.plan_all_reduce(comm.allocate(1 << 14)).run()
            with pytest.raises(ValueError):
                comm.all_reduce(x[::2])

    some()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(5):
        some()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before


def test_repeating_leaks_nothing():
    grown = run_ranks(2, repeat)  # KiB; a leak of every array would be 200 000
    assert max(grown) < 10_000, grown
