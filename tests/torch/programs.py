"""Runs a program on every rank, as processes that end as Python's do."""

import os
import re
import subprocess
import tempfile
from dataclasses import dataclass

import warm

# What is forked here goes on to the program, and to its natural end.
_PRELUDE = """
import datetime, os, signal, sys, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from ropewalk.torch import build
build.load()
torch.set_num_threads(1)
folder, size, timeout_s = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
pids = {}
for rank in range(size):
    pid = os.fork()
    if pid == 0:
        break
    pids[pid] = rank
else:
    while pids:
        pid, status = os.wait()
        code = os.waitstatus_to_exitcode(status)
        print("rank", pids.pop(pid), "ended", code, "at", time.monotonic(), flush=True)
    os._exit(0)
log = os.open(f"{folder}/rank{rank}", os.O_CREAT | os.O_WRONLY)
os.dup2(log, 1)
os.dup2(log, 2)

def start():
    dist.init_process_group("ropewalk", store=dist.FileStore(f"{folder}/store", size), rank=rank,
                            world_size=size, timeout=datetime.timedelta(seconds=timeout_s))

def now(what):
    print(what, "at", time.monotonic(), flush=True)

"""
_LIMIT_S = 90
#: Sooner than any timeout of these programs ends a wait, however busy the machine.
PROMPT_S = 25


@dataclass
class Ended:
    status: int      # negative: the signal
    at_s: float      # on the monotonic clock
    output: str

    def when(self, what):
        """The time of the line that the program's now(what) wrote."""
        return float(re.search(rf"^{what} at ([\d.]+)$", self.output, re.M)[1])


def run_program(size, program, timeout_s=30, **environment):
    """What became of each rank; AssertionError where a process does not end. The program has `rank`,
    `size`, start(), which joins the process group, and now()."""
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [*warm.python(), "-c", _PRELUDE + program, folder, str(size), str(timeout_s)],
            env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            text=True)
        late = False
        try:
            said, _ = process.communicate(timeout=_LIMIT_S)
        except subprocess.TimeoutExpired:
            late = True
        finally:
            process.kill()  # and with it all that it has run
            process.wait()
        outputs = []
        for rank in range(size):
            with open(f"{folder}/rank{rank}", encoding="utf-8") as log:
                outputs.append(log.read())
        assert not late, f"ranks were still there after {_LIMIT_S} s:\n" + "\n".join(outputs)
        ended = {int(rank): (int(code), float(at)) for rank, code, at in
                 re.findall(r"^rank (\d+) ended (-?\d+) at ([\d.]+)$", said, re.M)}
        return [Ended(*ended[rank], outputs[rank]) for rank in range(size)]
