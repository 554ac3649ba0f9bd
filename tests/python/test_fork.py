"""A forked child has no part in the job: calls are errors, and its end does nothing to anybody."""

import pytest

from scripts import run_script

# While everything is there that a rank may have, some of it under way.
IN_A_CHILD = """
comm = join()
x = np.ones(1 << 20, "float32")
memory = comm.allocate(1000)
plan = comm.plan_all_reduce(memory)
work = comm.all_reduce(x, async_op=True)
sgd = ropewalk.AllReduceSGD(comm)
sgd.sum_gradients([np.ones(4)])
ea = ropewalk.AsyncEA(comm, tau=1, alpha=0.5)
part = comm.split(0)
began = time.monotonic()
pid = os.fork()
if pid == 0:
{child}
else:
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status == {status}, status
    assert time.monotonic() - began < 15
    work.wait()
    assert (x == size).all()
    memory[:] = 1
    for turn in range(3):
        plan.run()
    assert (memory == size ** 3).all()
    comm.all_reduce(x)
    part.barrier()
    assert (x == size ** 2).all()
    ea.close()
    comm.close()
"""

CHILDREN = {
    "ends": ("    pass", 0),
    "exits": ("    sys.exit(3)", 3),
    "raises": ("    raise ValueError('in the child')", 1),
    "drops all": ("    import gc\n    del part, ea, sgd, work, plan, memory, comm\n    gc.collect()", 0),
    "closes": ("    comm.close()\n    ea.close()", 0),
    "leaves a block": ("    with comm:\n        sys.exit(4)", 4),
    "keeps other files": ("    import subprocess\n    subprocess.run(['true'], check=True)", 0),
}


@pytest.mark.parametrize("child", CHILDREN)
def test_a_forked_child_that_merely_ends_hangs(child):
    does, status = CHILDREN[child]
    ended = run_script(2, IN_A_CHILD.format(child=does, status=status))
    assert [one.status for one in ended] == [0, 0], ended


def test_a_call_in_a_forked_child_hangs():
    calls = ["comm.all_reduce(np.ones(3))", "comm.all_reduce(x, async_op=True)", "comm.barrier()",
             "comm.plan_all_reduce(x)", "comm.allocate(3)", "comm.abort('no')", "comm.split(0)",
             "work.wait()", "work.test()", "plan.run()", "plan.start()", "plan.test()",
             "plan.wait()", "sgd.sum_gradients([np.ones(4)])",
             "ea.synchronize_center([np.ones(4, 'float32')])", "ropewalk.AllReduceSGD(comm)",
             "ropewalk.AsyncEA(comm, 1, 0.5)"]
    child = "".join(f"""
    try:
        {call}
        print("no error:", {call!r}, flush=True)
        os._exit(9)
    except ropewalk.InvalidArgumentError as error:
        assert "forked" in str(error) and "rank" in str(error), error""" for call in calls)
    ended = run_script(2, IN_A_CHILD.format(child=child, status=0))
    assert [one.status for one in ended] == [0, 0], ended


def test_a_child_may_join_a_job_of_its_own():
    child = """
    own = ropewalk.Communicator(rank=0, size=1)
    own.all_reduce(np.ones(3))
    own.close()"""
    ended = run_script(2, IN_A_CHILD.format(child=child, status=0))
    assert [one.status for one in ended] == [0, 0], ended


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_multiprocessing(method):
    ended = run_script(2, f"""
import multiprocessing
comm = join()
with multiprocessing.get_context("{method}").Pool(2) as pool:
    assert pool.map(abs, [-1, -2, -3]) == [1, 2, 3]
    assert (comm.all_reduce(np.ones(3)) == size).all()
""")
    assert [one.status for one in ended] == [0, 0], ended
