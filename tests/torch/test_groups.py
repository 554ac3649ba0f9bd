"""Groups, works, timeouts and memory: what surrounds the calls."""

import datetime
import os
import resource
import subprocess
import sys
import threading
import time
import weakref

import pytest
import torch
import torch.distributed as dist

from groups import is_registered, run_group, start_group

transports = pytest.mark.parametrize("transport", ["shm", "tcp"])


def backend_of(group=None):
    return (group or dist.group.WORLD)._get_backend(torch.device("cpu"))


def the_transport(name):
    assert backend_of().transport == name and dist.get_backend() == "ropewalk"


@transports
def test_the_transport_is_the_one_asked_for(transport):
    run_group(2, the_transport, transport, transport=transport)


def what_the_store_was_told():
    x = torch.ones(3)
    dist.all_reduce(x)
    assert (x == dist.get_world_size()).all()
    store = dist.distributed_c10d._get_default_store()
    while not isinstance(store, dist.FileStore):
        store = store.underlying_store
    with open(store.path, "rb") as file:  # every word that was ever set
        return file.read().decode("latin-1")


# The job's key stood in the store, which is plain text, although the ranks had one of their own.
@pytest.mark.parametrize("key, greeting", [("", "ropewalk1 "), ("0123456789abcdef" * 4, "ropewalk2 ")])
def test_the_store_is_told_no_secret_where_there_is_a_key(key, greeting, monkeypatch):
    monkeypatch.setenv("ROPEWALK_JOB_KEY", key)
    for said in run_group(2, what_the_store_was_told, transport="tcp"):
        assert greeting in said and "0123456789abcdef" not in said


def sub_groups():
    rank = dist.get_rank()
    low, high = dist.new_group([0, 1]), dist.new_group([1, 2, 3])
    alone = dist.new_group([3])
    mine = [g for g in (low, high, alone) if dist.get_rank(g) >= 0]
    # Groups have calls under way at the same time, begun in different orders.
    tensors = [torch.full((50000,), 1.0) for _ in mine]
    works = [dist.all_reduce(x, group=g, async_op=True) for x, g in zip(tensors, mine)]
    for work, x, g in reversed(list(zip(works, tensors, mine))):
        work.wait()
        assert (x == dist.get_world_size(g)).all()
    if rank in (1, 2, 3):
        x = torch.full((2,), float(rank))
        dist.broadcast(x, src=2, group=high)
        assert (x == 2).all()
    # One group goes, the others go on.
    if rank in (0, 1):
        dist.destroy_process_group(low)
    if rank in (1, 2, 3):
        x = torch.ones(1)
        dist.all_reduce(x, group=high)
        assert x == 3
    x = torch.ones(1)
    dist.all_reduce(x)
    assert x == 4
    shifted, members = dist.new_subgroups(2)
    assert len(members) == 2
    dist.all_reduce(x, group=shifted)
    assert x == 8


@transports
def test_sub_groups(transport):
    run_group(4, sub_groups, transport=transport)


def many_groups():
    def make(count):
        groups = [dist.new_group(ranks) for _ in range(count) for ranks in ([0, 1, 2, 3], [3, 1])]
        for group in groups:
            if dist.get_rank(group) >= 0:
                x = torch.ones(2)
                dist.all_reduce(x, group=group)
                assert (x == dist.get_world_size(group)).all()
        return groups

    groups = make(1)  # all connections stand
    before = len(os.listdir("/proc/self/fd"))
    groups += make(20)
    after = len(os.listdir("/proc/self/fd"))
    assert backend_of(groups[0]).transport == backend_of().transport
    dist.barrier()
    return after - before


# Each was a job of its own, with 19 descriptors.
@transports
def test_groups_share_what_the_default_group_has(transport):
    assert run_group(4, many_groups, transport=transport) == [0] * 4


def a_mesh_of_two_dimensions():
    rank = dist.get_rank()
    members = {"dp": (rank % 2, rank % 2 + 2), "tp": (rank // 2 * 2, rank // 2 * 2 + 1)}

    def check(mesh, name):
        x = torch.full((3,), float(rank))
        dist.all_reduce(x, group=mesh.get_group(name))
        assert (x == sum(members[name])).all()

    def make():
        mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        for name in members:
            check(mesh, name)
        return mesh

    first = make()  # all connections stand
    dist.barrier()
    before = len(os.listdir("/proc/self/fd"))
    mesh = make()
    after = len(os.listdir("/proc/self/fd"))
    dist.barrier()
    if rank == 0:
        backend_of(mesh["tp"].get_group()).abort()
    if rank < 2:
        with pytest.raises(dist.DistBackendError, match="aborted"):
            while True:
                check(mesh, "tp")
    else:
        check(mesh, "tp")
    check(mesh, "dp")
    check(first, "tp")
    return after - before


@transports
def test_a_mesh_costs_no_descriptor_and_fails_in_one_dimension(transport):
    assert run_group(4, a_mesh_of_two_dimensions, transport=transport) == [0] * 4


def a_group_of_its_members_alone():
    if dist.get_rank() in (2, 0):
        group = dist.new_group([2, 0], use_local_synchronization=True)
        x = torch.ones(1)
        dist.all_reduce(x, group=group)
        assert x == 2
        dist.destroy_process_group(group)
        again = dist.new_group([2, 0], use_local_synchronization=True)
        dist.all_reduce(x, group=again)
        assert x == 4
    x = torch.ones(1)
    dist.all_reduce(x)
    assert x == dist.get_world_size()


@transports
def test_a_group_is_made_by_its_members_alone(transport):
    run_group(3, a_group_of_its_members_alone, transport=transport)


def one_group_breaks():
    bad, good = dist.new_group(), dist.new_group()
    x = torch.ones(1)
    dist.all_reduce(x, group=bad)
    dist.barrier()
    if dist.get_rank() == 1:
        backend_of(bad).abort()
    with pytest.raises(dist.DistBackendError, match="aborted"):
        while True:
            dist.all_reduce(x, group=bad)
    for group in (good, None):
        x = torch.ones(1)
        dist.all_reduce(x, group=group)
        assert x == dist.get_world_size()
    third = dist.new_group()
    dist.all_reduce(x, group=third)


def test_a_group_that_breaks_leaves_the_others():
    run_group(3, one_group_breaks)


def the_default_group_goes_first():
    group = dist.new_group([1, 0])
    backend = backend_of(group)
    if dist.get_rank() == 1:
        backend_of().shutdown()
    x = torch.ones(1)
    backend.allreduce([x]).wait()
    assert x == 2
    # Not all ranks of the next are still in the default group: it is a job of its own.
    before = len(os.listdir("/proc/self/fd"))
    alone = dist.new_group([0, 1])
    dist.all_reduce(x, group=alone)
    assert x == 4 and len(os.listdir("/proc/self/fd")) > before + 5
    if dist.get_rank() == 0:
        backend_of().shutdown()
    dist.all_reduce(x, group=alone)
    backend.allreduce([x]).wait()
    assert x == 16


def one_does_not_come(seconds):
    if dist.get_rank() == 2:
        time.sleep(seconds + 2)
        return
    begin = time.monotonic()
    missed = 2 if dist.get_rank() == 0 else 0  # which passes on what all have said
    with pytest.raises(dist.DistBackendError, match=f"rank {missed} of the default group has not come"):
        dist.new_group(timeout=datetime.timedelta(seconds=seconds))
    assert time.monotonic() - begin < 20


def test_who_does_not_come_to_a_new_group_is_named():
    """Within the group's timeout, not the store's."""
    run_group(3, one_does_not_come, 2)


def test_a_group_outlives_the_default_group():
    run_group(2, the_default_group_goes_first)


def futures():
    rank, size = dist.get_rank(), dist.get_world_size()
    x = torch.full((1000,), float(rank))
    work = dist.all_reduce(x, async_op=True)
    halved = work.get_future().then(lambda future: future.value()[0] / 2)
    assert (halved.wait() == size * (size - 1) / 4).all()
    assert work.wait() and work.is_completed() and work.is_success()
    work = dist.all_reduce(x, async_op=True)
    while not work.is_completed():
        time.sleep(0.001)
    assert work.get_future().wait()[0] is not None
    both = torch.futures.collect_all([dist.all_reduce(torch.ones(9), async_op=True).get_future()
                                      for _ in range(3)]).wait()
    assert all((future.value()[0] == size).all() for future in both)
    gathered = dist.all_gather_into_tensor(torch.empty(3 * size), torch.ones(3), async_op=True)
    gathered = gathered.get_future().wait()
    assert (gathered[0] == 1).all()


def dropped():
    rank, size = dist.get_rank(), dist.get_world_size()
    x = torch.full((1 << 18,), 1.0 + rank)
    y = torch.ones(5)
    dist.all_reduce(x, async_op=True)  # nobody keeps the work
    parts = [torch.empty(1 << 18) for _ in range(size)]
    dist.all_gather(parts, torch.full((1 << 18,), float(rank)), async_op=True)
    seen = weakref.ref(dist.all_reduce(y, async_op=True))
    assert seen() is None or seen().wait()
    dist.barrier()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if (x == size * (size + 1) // 2).all() and all((p == r).all() for r, p in enumerate(parts)):
            return
        time.sleep(0.01)
    raise AssertionError(x, parts)


def from_many_threads():
    """A group for each, as PyTorch asks of its users."""
    groups = [dist.new_group() for _ in range(4)]
    wrong = []

    def work(group):
        for i in range(20):
            x = torch.full((100,), float(i))
            dist.all_reduce(x, group=group)
            if not (x == i * dist.get_world_size()).all():
                wrong.append(i)
    threads = [threading.Thread(target=work, args=(group,)) for group in groups]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def registered_memory():
    size = dist.get_world_size()
    backend = backend_of()
    assert backend.supports_tensor_alloc(torch.device("cpu"))
    x = backend.allocate_tensor(1 << 16, dtype=torch.float32, device=torch.device("cpu"))
    x.fill_(2)
    dist.all_reduce(x)
    assert x.shape == (1 << 16,) and (x == 2 * size).all()
    view = x[100:200]
    dist.all_reduce(view)
    assert (view == 2 * size * size).all()
    half = backend.allocate_tensor(8, dtype=torch.bfloat16, device=torch.device("cpu"))
    half.fill_(1)
    dist.all_reduce(half, dist.ReduceOp.AVG)
    assert (half == 1).all()
    del backend
    dist.destroy_process_group()
    assert (view == 2 * size * size).all()  # memory stays valid
    view.fill_(0)


def memory_that_one_rank_cannot_register():
    backend, size = backend_of(), dist.get_world_size()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if dist.get_rank() == 0:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    x = backend.allocate_tensor(1 << 20, dtype=torch.float32, device=torch.device("cpu"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert is_registered(x) == (dist.get_rank() != 0)
    x.fill_(dist.get_rank())
    dist.all_reduce(x)
    assert (x == sum(range(size))).all()


@transports
@pytest.mark.parametrize("body", [futures, dropped, from_many_threads, registered_memory,
                                  memory_that_one_rank_cannot_register])
def test_works_and_memory(body, transport):
    run_group(3, body, transport=transport)


def again(folder):
    rank, size = dist.get_rank(), dist.get_world_size()
    for turn in range(3):
        x = torch.ones(4)
        dist.all_reduce(x)
        assert (x == size).all()
        kept = dist.group.WORLD if turn == 1 else None  # a reference must not hold up the next
        dist.destroy_process_group()
        start_group(os.path.join(folder, f"store{turn}"), rank, size)
    del kept


@transports
def test_a_process_joins_again(transport, tmp_path):
    run_group(3, again, str(tmp_path), transport=transport)


def alone():
    x = torch.arange(3.0)
    dist.all_reduce(x)
    dist.all_reduce(x, dist.ReduceOp.AVG)
    out = torch.empty(3)
    dist.all_to_all_single(out, x)
    dist.reduce_scatter_tensor(out, x)
    parts = [torch.empty(3)]
    dist.all_gather(parts, x, async_op=True).wait()
    assert torch.equal(parts[0], torch.arange(3.0)) and torch.equal(out, torch.arange(3.0))
    assert backend_of().transport == "self"
    group = dist.new_group([0])
    dist.barrier(group)


def test_a_group_of_one():
    run_group(1, alone)


def time_limits():
    """Its own for each group; a changed one holds from then on."""
    rank = dist.get_rank()
    short = dist.new_group(timeout=datetime.timedelta(seconds=1))
    changed = dist.new_group()
    dist.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=2), changed)
    for group, limit_s in [(short, 1), (changed, 2)]:
        if rank == 0:
            began = time.monotonic()
            with pytest.raises(dist.DistBackendError, match=r"all_reduce.*[12](\.0)? s"):
                dist.all_reduce(torch.ones(2), group=group)
            assert limit_s * 0.9 < time.monotonic() - began < limit_s + 3
    options = dist.AllreduceOptions()
    options.timeout = datetime.timedelta(seconds=1)
    sparse = dist.new_group()
    if rank == 0:
        with pytest.raises(dist.DistBackendError, match=r"all_reduce.*1(\.0)? s"):
            backend_of(sparse).allreduce([torch.ones(2).to_sparse()], options)
    dist.barrier()  # with half a minute's time


def late_futures():
    """A future of a call that fails has its error."""
    if dist.get_rank() == 0:
        work = dist.all_reduce(torch.ones(2), async_op=True)
        with pytest.raises(Exception, match="all_reduce"):
            work.get_future().wait()
        assert work.exception() is not None and not work.is_success()


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_timeouts(transport):
    run_group(2, time_limits, transport=transport)


def test_a_future_fails():
    run_group(2, late_futures, timeout_s=2)


def detailed():
    rank, size = dist.get_rank(), dist.get_world_size()
    x = torch.ones(10)
    dist.all_reduce(x)
    out = torch.empty(10 * size)
    dist.all_gather_into_tensor(out, x)
    assert (out == size).all()
    group = dist.new_group([0, 1])
    if rank < 2:
        dist.all_reduce(x, group=group)
    dist.barrier()


def run_with(size, body, **environment):
    """For what is read when a process starts."""
    script = ("import sys; sys.path.insert(0, %r); import test_groups, groups; "
              "groups.run_group(%d, test_groups.%s)"
              % (os.path.dirname(__file__), size, body.__name__))
    done = subprocess.run([sys.executable, "-c", script], timeout=120, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True,
                          env={**os.environ, "TORCH_CPP_LOG_LEVEL": "ERROR", **environment})
    assert done.returncode == 0, done.stdout


def test_the_detailed_debug_level():
    """PyTorch wraps the backend then, and compares every call over gloo beforehand."""
    run_with(3, detailed, TORCH_DISTRIBUTED_DEBUG="DETAIL")


def destroyed_by_a_callback():
    """Its thread is the last that has a part of the group."""
    for _ in range(5):
        groups = [dist.new_group()]
        future = dist.all_reduce(torch.ones(300_000), group=groups[0], async_op=True).get_future()
        future.then(lambda _: dist.destroy_process_group(groups.pop())).wait()
        time.sleep(0.1)


def test_a_callback_destroys_its_group():
    """What is freed is overwritten at once."""
    run_with(2, destroyed_by_a_callback,
             GLIBC_TUNABLES="glibc.malloc.tcache_count=0:glibc.malloc.perturb=165")


def test_the_profiler_names_calls():
    run_group(2, profiled)


def profiled():
    dist.barrier()
    with torch.profiler.profile() as profile:
        if dist.get_rank() == 1:
            time.sleep(0.5)  # the others wait so long
        dist.all_reduce(torch.ones(4))
        dist.all_gather_into_tensor(torch.empty(8), torch.ones(4))
        dist.barrier()
        if dist.get_rank() == 1:
            time.sleep(0.5)
        dist.all_reduce(torch.ones(4).to_sparse())
    seconds = [event.cpu_time_total / 1e6 for event in profile.events()
               if event.name == "ropewalk:all_reduce"]
    assert "ropewalk:all_gather" in {event.name for event in profile.events()}
    assert len(seconds) == 2
    if dist.get_rank() == 0:
        assert min(seconds) > 0.3, seconds
