"""Forked children have no part in a group: calls are errors there, and their end does nothing to anybody."""

import pytest

from programs import run_program

# Within training, with works, futures and memory of the group's there.
IN_A_CHILD = """
start()
model = DistributedDataParallel(torch.nn.Linear(100, 10))
x = torch.ones(1000)
def step():
    model.zero_grad()
    model(torch.ones(4, 100)).sum().backward()
step()
backend = dist.group.WORLD._get_backend(torch.device("cpu"))
memory = backend.allocate_tensor(100, dtype=torch.float32, device=torch.device("cpu"))
work = dist.all_reduce(x, async_op=True)
late = dist.irecv(torch.zeros(3), 1 - rank)
future = late.get_future()
pid = os.fork()
if pid == 0:
{child}
else:
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status == {status}, status
    work.wait()
    assert (x == size).all()
    dist.send(torch.ones(3), 1 - rank)
    future.wait()
    step()
    dist.all_reduce(memory.fill_(1))
    assert (memory == size).all()
    dist.destroy_process_group()
"""

CHILDREN = {
    "ends": ("    pass", 0),
    "exits": ("    sys.exit(3)", 3),
    "raises": ("    raise ValueError('in the child')", 1),
    "destroys": ("    dist.destroy_process_group()", 0),
    "drops all": ("    import gc\n    del work, late, future, memory, backend, model\n    gc.collect()", 0),
}


@pytest.mark.parametrize("child", CHILDREN)
def test_a_forked_child_that_merely_ends_hangs(child):
    does, status = CHILDREN[child]
    ended = run_program(2, IN_A_CHILD.format(child=does, status=status))
    assert [one.status for one in ended] == [0, 0], ended


def test_a_call_in_a_forked_child_hangs():
    calls = ["dist.all_reduce(x)", "dist.all_reduce(x, async_op=True)", "dist.barrier()",
             "dist.send(x, 1 - rank)", "dist.recv(x)", "work.wait()", "work.is_completed()",
             "late.get_future()", "step()", "backend.transport",
             "backend.allocate_tensor(9, dtype=torch.float32, device=torch.device('cpu'))"]
    child = "".join(f"""
    try:
        {call}
        print("no error:", {call!r}, flush=True)
        os._exit(9)
    except dist.DistBackendError as error:
        assert "was forked from" in str(error) and f"rank {{rank}}" in str(error), error""" for call in calls)
    ended = run_program(2, IN_A_CHILD.format(child=child, status=0))
    assert [one.status for one in ended] == [0, 0], ended


OTHERS = {
    "workers of multiprocessing": """
    import multiprocessing
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            assert pool.map(abs, [-1, -2]) == [1, 2]
        step()
""",
    "workers of a DataLoader": """
    from torch.utils.data import DataLoader, TensorDataset
    for epoch in range(2):
        for (batch,) in DataLoader(TensorDataset(torch.ones(32, 100)), batch_size=4, num_workers=2):
            step()
""",
    "subprocess": """
    import subprocess
    for _ in range(3):
        assert subprocess.run(["echo", "there"], stdout=subprocess.PIPE).stdout == b"there\\n"
        step()
""",
}


@pytest.mark.parametrize("kind", OTHERS)
def test_children_in_the_middle_of_training(kind):
    ended = run_program(2, """
start()
model = DistributedDataParallel(torch.nn.Linear(100, 10))
def step():
    model.zero_grad()
    model(torch.full((4, 100), float(rank))).sum().backward()
    assert (model.module.weight.grad == 2).all()  # 4 times the mean of 0 and 1
def main():
    step()
    {work}
    dist.destroy_process_group()
main()
""".replace("    {work}\n", OTHERS[kind]))
    assert [one.status for one in ended] == [0, 0], ended
