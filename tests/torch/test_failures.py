"""What goes wrong is an exception that names rank and operation, soon; and no process stays."""

import multiprocessing
import os
import re
import time

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from groups import outcomes_of, run_group, start_group
from programs import PROMPT_S, run_program

transports = pytest.mark.parametrize("transport", ["shm", "tcp"])


def bad_input():
    rank, x = dist.get_rank(), torch.ones(4, 6)
    with pytest.raises(ValueError, match=rf"rank {rank}: all_reduce: .*not contiguous"):
        dist.all_reduce(x.t())
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    with pytest.raises(ValueError, match=r"all_reduce: a tensor is on meta.*call \.cpu\(\)"):
        backend.allreduce([torch.ones(3, device="meta")])
    with pytest.raises(ValueError, match="all_reduce.*Float8"):
        dist.all_reduce(torch.ones(3).to(torch.float8_e4m3fn))
    with pytest.raises(ValueError, match="bitwise"):
        dist.all_reduce(x, dist.ReduceOp.BAND)
    with pytest.raises(ValueError, match="complex"):
        dist.all_reduce(torch.ones(3, dtype=torch.complex64), dist.ReduceOp.MAX)
    with pytest.raises(ValueError, match="booleans"):
        dist.all_reduce(x > 0, dist.ReduceOp.AVG)
    with pytest.raises(ValueError, match="PREMUL_SUM"):
        dist.all_reduce(torch.ones(3, dtype=torch.int32), dist._make_nccl_premul_sum(2.0))
    with pytest.raises(ValueError, match="broadcast.*dense"):
        backend.broadcast([x.to_sparse()], dist.BroadcastOptions())
    with pytest.raises((ValueError, TypeError), match="type"):
        dist.all_gather_into_tensor(torch.empty(8, 6, dtype=torch.int32), x)
    with pytest.raises(ValueError, match="elements"):
        dist.all_gather_into_tensor(torch.empty(5, 6), x)
    with pytest.raises(ValueError, match="all_gather.*3 tensors.*2 ranks"):
        dist.all_gather([torch.empty(4, 6) for _ in range(3)], x)
    with pytest.raises(ValueError, match="elements"):
        dist.reduce_scatter_tensor(torch.empty(3), x)
    with pytest.raises(ValueError, match="split sizes"):
        dist.all_to_all_single(torch.empty(4, 6), x, [1, 3], [1, 1])
    with pytest.raises(ValueError, match="no multiple"):
        dist.all_to_all_single(torch.empty(3), torch.empty(3))
    with pytest.raises(ValueError, match=rf"rank {rank}: all_gather: .*overlap"):
        dist.all_gather_into_tensor(x, x.view(-1)[6:18].view(2, 6))
    with pytest.raises(ValueError, match="negative"):
        dist.all_to_all_single(torch.empty(4, 6), x, [-1, 5], [2, 2])
    dist.all_reduce(x)  # nothing was sent: the group is as it was
    assert (x == dist.get_world_size()).all()


@transports
def test_bad_input(transport):
    run_group(2, bad_input, transport=transport)


def different(kind):
    rank = dist.get_rank()
    if kind == "shape":
        dist.all_reduce(torch.ones(3 + rank))
    elif kind == "dtype":
        dist.all_reduce(torch.ones(4, dtype=[torch.float32, torch.int32, torch.float32][rank]))
    elif kind == "op":
        dist.all_reduce(torch.ones(4), [dist.ReduceOp.SUM, dist.ReduceOp.MAX][rank % 2])
    elif kind == "root":
        dist.broadcast(torch.ones(4), rank // 2)
    elif kind == "call":
        x = torch.ones(6)
        if rank == 1:
            dist.broadcast(x, 0)
        dist.all_reduce(x)
    dist.barrier()  # who only sends may learn it one call later


@transports
@pytest.mark.parametrize("kind", ["shape", "dtype", "op", "root", "call"])
def test_ranks_differ(kind, transport):
    for rank, (how, text) in enumerate(outcomes_of(3, different, kind, transport=transport)):
        assert how == "raised" and "DistBackendError" in text, text
        assert "mismatch" in text and re.search(r"rank \d called .* but rank \d called", text), text


def after_destruction():
    world = dist.group.WORLD
    backend = world._get_backend(torch.device("cpu"))
    group = dist.new_group([0, 1])
    dist.destroy_process_group()
    for used in (backend, group, world):
        with pytest.raises((dist.DistBackendError, ValueError, RuntimeError),
                           match="destroyed|not.* registered|Invalid process group"):
            used.allreduce([torch.ones(2)]).wait()
    with pytest.raises(ValueError, match="not been initialized"):
        dist.all_reduce(torch.ones(2))


def test_a_group_is_used_after_its_end():
    run_group(2, after_destruction)


# A rank dies within a backward pass, while others wait for its part of a sum.
KILLED = """
start()
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Sequential(*[torch.nn.Linear(300, 300) for _ in range(4)]),
                                bucket_cap_mb=0.1)
step = 0
def kill(_):
    if rank == 1 and step == 3:
        now("killed")
        os.kill(os.getpid(), signal.SIGKILL)
model.module[1].weight.register_hook(kill)
for step in range(1000):
    model(torch.ones(2, 300)).sum().backward()
"""


@transports
def test_a_rank_is_killed_in_a_backward_pass(transport):
    ended = run_program(3, KILLED, ROPEWALK_TRANSPORT=transport)
    assert ended[1].status == -9
    for one in (ended[0], ended[2]):
        assert one.status == 1 and "DistBackendError" in one.output, one
        assert re.search(r"DistBackendError: .*all_reduce.*rank 1.*died", one.output), one.output
        assert one.at_s - ended[1].when("killed") < PROMPT_S, one


RAISED = """
start()
x = torch.ones(1000)
for i in range(1000):
    if rank == 2 and i == 5:
        now("raised")
        raise KeyError("an accident")
    dist.all_reduce(x)
"""


@transports
def test_a_rank_raises(transport):
    ended = run_program(3, RAISED, ROPEWALK_TRANSPORT=transport)
    assert ended[2].status == 1 and "an accident" in ended[2].output
    for one in ended[:2]:
        assert one.status == 1 and "DistBackendError" in one.output, one
        assert "rank 2" in one.output and "all_reduce" in one.output, one.output
    for one in ended:
        assert one.at_s - ended[2].when("raised") < PROMPT_S, one


LEFT = """
start()
group = dist.new_group([0, 1])
dist.barrier()
if rank < 2:
    for _ in range(30):
        time.sleep(0.1)
        x = torch.ones(10)
        dist.all_reduce(x, group=group)
        assert (x == 2).all()
now("done")
"""


@transports
def test_a_rank_ends_without_destroying_its_group(transport):
    """It is not missed: the others have calls without it. Nobody calls destroy_process_group."""
    ended = run_program(3, LEFT, ROPEWALK_TRANSPORT=transport)
    assert [one.status for one in ended] == [0, 0, 0], ended
    assert max(one.at_s for one in ended) - max(one.when("done") for one in ended) < PROMPT_S, ended


def leaves_by_returning(folder, rank):
    """In a worker of multiprocessing, which ends without what is registered with atexit."""
    start_group(os.path.join(folder, "store"), rank, 3)
    dist.barrier()
    for _ in range(20 if rank < 2 else 0):
        time.sleep(0.1)
        works = [dist.isend(torch.ones(10), 1 - rank), dist.irecv(torch.empty(10), 1 - rank)]
        for work in works:
            work.wait()


def test_a_worker_returns_without_destroying_its_group(tmp_path):
    processes = multiprocessing.get_context("fork")
    workers = [processes.Process(target=leaves_by_returning, args=(str(tmp_path), rank))
               for rank in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        worker.kill()
    assert [worker.exitcode for worker in workers] == [0, 0, 0]


MISSED = """
start()
dist.barrier()
if rank != 1:
    time.sleep(1.5)
    now("asked")
    dist.all_reduce(torch.ones(10))
"""


@transports
def test_a_rank_has_ended_that_is_needed(transport):
    ended = run_program(3, MISSED, ROPEWALK_TRANSPORT=transport)
    assert ended[1].status == 0, ended[1]
    for one in (ended[0], ended[2]):
        assert one.status == 1 and "rank 1" in one.output, one
        assert one.at_s - one.when("asked") < PROMPT_S, one


DESTROYED = """
import atexit, ctypes, threading
ctypes.CDLL(None).mallopt(-6, 0xA5)  # M_PERTURB: what is freed is overwritten
def destroy():
    while groups:
        dist.destroy_process_group(groups.pop())
thread = threading.Thread(target=destroy, daemon=True)
atexit.register(thread.join)  # what is registered later goes first: the leave of all groups
start()
groups = [dist.new_group() for _ in range(8)]
dist.barrier()
thread.start()
"""


def test_groups_are_destroyed_while_the_process_ends():
    ended = run_program(2, DESTROYED)
    assert [one.status for one in ended] == [0, 0], ended


# The main thread ends, while another waits for a message that nobody sends.
WAITED = """
import threading
start()
threading.Thread(target=dist.{call}, daemon=True).start()
time.sleep(1)
now("end")
"""


@pytest.mark.parametrize("call", ["recv, args=[torch.zeros(3)]", "recv, args=[torch.zeros(3), 1 - rank]"])
def test_a_thread_waits_while_the_process_ends(call):
    ended = run_program(2, WAITED.format(call=call), timeout_s=600)
    for one in ended:
        assert one.status == 0 and one.at_s - one.when("end") < PROMPT_S, ended


# Rank 0 fails while its peer computes: nobody makes the other's part of the sum.
BUSY = """
start()
dist.barrier()
if rank == 0:
    sums = torch.ones(3)
    future = dist.all_reduce(sums, async_op=True).get_future()
    now("raised")
    raise KeyError("an accident")
time.sleep(16)
"""


def test_a_rank_raises_while_another_computes():
    ended = run_program(2, BUSY, timeout_s=600)
    assert ended[0].status == 1 and ended[0].at_s - ended[0].when("raised") < 12, ended


INTERRUPTED = """
start()
dist.barrier()
if rank == 0:
    time.sleep(1)
    now("sent")
    os.kill(other, signal.SIGINT)
    {rank0}
else:
    {rank1}
"""


def test_ctrl_c_in_a_rank_that_computes():
    program = ("other = [None]\n" + INTERRUPTED).format(
        rank0="dist.all_reduce(torch.ones(3))", rank1="time.sleep(60)")
    program = program.replace("other = [None]", "other = None").replace(
        "dist.barrier()", "everyone = [None, None]\n"
        "dist.all_gather_object(everyone, os.getpid())\nother = everyone[1]")
    ended = run_program(2, program)
    assert "KeyboardInterrupt" in ended[1].output and ended[1].status in (1, 130, -2), ended[1]
    assert ended[0].status == 1 and "rank 1" in ended[0].output, ended[0]
    assert max(one.at_s for one in ended) - ended[0].when("sent") < PROMPT_S


def test_ctrl_c_in_a_rank_that_waits():
    """At the latest when the call's time is over."""
    program = INTERRUPTED.format(rank0="time.sleep(4)", rank1="dist.all_reduce(torch.ones(3))")
    program = program.replace(
        "dist.barrier()", "everyone = [None, None]\n"
        "dist.all_gather_object(everyone, os.getpid())\nother = everyone[1]")
    ended = run_program(2, program, timeout_s=3)
    assert ended[1].status != 0 and "all_reduce" in ended[1].output, ended[1]
    assert max(one.at_s for one in ended) - ended[0].when("sent") < PROMPT_S


def one_comes_late():
    if dist.get_rank() == 0:
        with pytest.raises(dist.DistBackendError, match=r"rank 0: all_reduce.*2(\.0)? s"):
            dist.all_reduce(torch.ones(3))
    else:
        time.sleep(4)


def nobody_sends():
    if dist.get_rank() == 0:
        with pytest.raises(dist.DistBackendError, match="rank 0: recv: timeout after 1 s"):
            dist.recv(torch.ones(3))
    else:
        time.sleep(2)


def test_a_receive_from_any_source_that_nobody_sends_to():
    run_group(2, nobody_sends, timeout_s=1)


def test_a_call_that_others_do_not_make():
    run_group(2, one_comes_late, timeout_s=2)


def misses_a_backward_pass():
    model = DistributedDataParallel(torch.nn.Linear(10, 10))
    if dist.get_rank() == 1:
        time.sleep(5)
    model(torch.ones(2, 10)).sum().backward()


def test_a_backward_pass_times_out_after_0_seconds():
    """It has waited for the group's timeout, and says what sets that."""
    (_, text), _ = outcomes_of(2, misses_a_backward_pass, timeout_s=3)
    found = re.search(r"all_reduce.*timeout after ([\d.]+) s: rank 1 has not called all_reduce.*", text)
    assert found and 2.9 < float(found[1]) < 20, text
    assert "new_group(timeout=...)" in found[0] and "ROPEWALK_TIMEOUT" not in found[0], text
