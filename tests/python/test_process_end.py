"""A rank whose process ends by an exception, or by sys.exit, ends its part in the job at once; others do nothing to it."""

import re
import subprocess
import sys
import sysconfig

import pytest

from scripts import run_script

# How rank 2 ends, and what the others are told.
ENDS = {
    "raises": ("raise ValueError('a bad sample')", "ValueError: a bad sample"),
    "exits": ("sys.exit(3)", "SystemExit: 3"),
    "raises SystemExit": ("raise SystemExit(3)", "SystemExit: 3"),
    "exits with a text": ("sys.exit('no data')", "SystemExit: no data"),
    "exits when it has caught": ("""
    try:
        raise ValueError("a bad sample")
    except ValueError:
        sys.exit(1)""", "ValueError: a bad sample, then SystemExit: 1"),
    "is interrupted": ("os.kill(os.getpid(), signal.SIGINT)", "KeyboardInterrupt"),
    "raises with an empty text": ("raise KeyError", "KeyError"),
}

# It goes on for long in its end, as a process does that takes PyTorch apart.
ENDS_SLOWLY = """
import atexit
comm = join(timeout=50)
x = np.ones(1000)
if rank == 2:
    atexit.register(time.sleep, 2)
{hook}
for i in range(1000):
    if rank == 2 and i == 5:
        {end}
    comm.all_reduce(x)
"""


@pytest.mark.parametrize("end", ENDS)
def test_a_rank_that_raises_stays_in_the_job(end):
    how, reason = ENDS[end]
    ended = run_script(3, ENDS_SLOWLY.format(end=how.replace("\n", "\n    "), hook=""))
    assert all(one.status != 0 for one in ended), ended
    for one in ended[:2]:
        assert f"AbortedError: rank 2: abort: rank 2 aborted the job: {reason} [" in one.output, one


def test_a_rank_that_ends_because_another_has_failed_ends_first():
    """Launchers then take it for the cause."""
    ended = run_script(3, ENDS_SLOWLY.format(end="raise ValueError('a bad sample')", hook=""))
    assert max(ended[0].at_s, ended[1].at_s) > ended[2].at_s, ended
    assert min(ended[0].at_s, ended[1].at_s) >= ended[2].at_s, ended




@pytest.mark.parametrize("calls_the_one_before", [False, True])
def test_a_hook_of_the_user_is_replaced(calls_the_one_before):
    """Whether it was set before or after joining."""
    later = "lambda *what: (print('later', what[1], flush=True)%s)" % (
        ", earlier(*what)" if calls_the_one_before else ", None")
    script = "sys.excepthook = lambda *what: print('first', what[1], flush=True)\n" + ENDS_SLOWLY.format(
        hook=f"earlier = sys.excepthook\nsys.excepthook = {later}", end="raise ValueError('a bad sample')")
    ended = run_script(3, script)
    assert "later a bad sample" in ended[2].output, ended[2]
    assert ("first a bad sample" in ended[2].output) == calls_the_one_before, ended[2]
    for one in ended[:2]:
        assert "rank 2 aborted the job: ValueError: a bad sample" in one.output, one


# None of these ends the process, so none may end its part.
GOES_ON = {
    "a thread raises": "threading.Thread(target=lambda: 1 / 0).start()",
    "a thread exits": "threading.Thread(target=sys.exit, args=(3,)).start()",
    "an exit is caught": """
try:
    sys.exit(3)
except SystemExit as exit:
    assert exit.code == 3""",
    "the hook is called": """
try:
    1 / 0
except ZeroDivisionError:
    sys.excepthook(*sys.exc_info())""",
    "a console": """
import code
code.InteractiveConsole().runsource("1 / 0")""",
    "a forked child raises": """
pid = os.fork()
if pid == 0:
    raise ValueError("a child's")
assert os.waitpid(pid, 0)[1] != 0""",
    "a forked child exits": """
pid = os.fork()
if pid == 0:
    sys.exit(3)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3""",
    "a worker raises": """
import multiprocessing
worker = multiprocessing.get_context("fork").Process(target=lambda: 1 / 0)
worker.start()
worker.join()
assert worker.exitcode == 1""",
}


@pytest.mark.parametrize("what", GOES_ON)
def test_what_does_not_end_the_process(what):
    ended = run_script(2, "comm = join()\n" + GOES_ON[what] + """
time.sleep(0.2)
x = np.ones(10)
comm.all_reduce(x)
assert (x == 2).all()
""")
    assert [one.status for one in ended] == [0, 0], ended


def test_an_exception_at_a_prompt():
    ended = run_script(2, "comm = join()\n1 / 0", options=["-i"],
                       given="1 / 0\nx = np.ones(3)\ncomm.all_reduce(x)\nprint('sum', x[0])\nexit()\n")
    for one in ended:
        assert one.status == 0 and one.output.count("ZeroDivisionError") == 2, one
        assert "sum 2.0" in one.output, one


def test_an_exit_with_status_0_is_no_failure():
    """The other rank has more to do, without it."""
    ended = run_script(2, """
comm = join()
comm.barrier()
if rank == 0:
    sys.exit(0)
time.sleep(0.5)
""")
    assert [one.status for one in ended] == [0, 0], ended


def test_a_worker_forked_in_an_except_block_fails():
    """It still has its parent's exception, which is none of its own."""
    ended = run_script(2, """
import multiprocessing
def work():
    comm = join(timeout=50)
    comm.barrier()
    if rank == 1:
        time.sleep(0.5)
    comm.barrier()
worker = multiprocessing.get_context("fork").Process(target=work)
try:
    raise ValueError("a first attempt")
except ValueError:
    worker.start()
worker.join()
sys.exit(worker.exitcode)
""")
    assert [one.status for one in ended] == [0, 0], ended
    assert not any("aborted" in one.output for one in ended), ended


@pytest.mark.parametrize("status", ["0.0", "np.int64(0)", "np.zeros(2)"])
def test_an_exit_with_what_python_takes_for_no_status(status):
    """Python prints it and ends with status 1."""
    ended = run_script(2, f"""
comm = join(timeout=50)
comm.barrier()
if rank == 1:
    sys.exit({status})
comm.barrier()
""")
    assert [one.status for one in ended] == [1, 1], ended
    assert "rank 1 aborted the job: SystemExit" in ended[0].output, ended[0]


def test_a_worker_that_raises_stays_in_the_job():
    """Of multiprocessing: sys.excepthook is not called there."""
    ended = run_script(2, """
import multiprocessing
def work():
    comm = join(timeout=50)
    while True:
        comm.barrier()
        if rank == 1:
            raise ValueError("a bad sample")
worker = multiprocessing.get_context("fork").Process(target=work)
worker.start()
worker.join()
sys.exit(worker.exitcode)
""")
    assert [one.status for one in ended] == [1, 1], ended
    assert "rank 1 aborted the job: ValueError: a bad sample" in ended[0].output, ended[0]


def test_ropewalk_run_blames_a_rank_that_another_has_failed():
    script = ENDS_SLOWLY.replace("join(timeout=50)", "ropewalk.Communicator()").replace(
        "comm =", "import sys, time; import numpy as np; import ropewalk; comm =", 1).replace(
        "x =", "rank = comm.rank; x =", 1)
    for _ in range(3):
        done = subprocess.run([sysconfig.get_path("scripts") + "/ropewalk", "run", "-n", "3", "--",
                               sys.executable, "-c", script.format(end="sys.exit(3)", hook="")],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=60)
        assert re.search(r"ropewalk run: rank 2 .* exited with status 3", done.stdout), done.stdout
