"""A rank whose process fails is named by the others and by the launcher, at once."""

import os
import re
import subprocess
import sysconfig

import pytest

import warm
from programs import run_program

SCRIPTS = sysconfig.get_path("scripts")
ENDS = {
    "raises": ("raise ValueError('a bad sample')", "ValueError: a bad sample"),
    "exits": ("sys.exit(3)", "SystemExit: 3"),
    "raises SystemExit": ("raise SystemExit(3)", "SystemExit: 3"),
    "loses a worker": ("lose_a_worker()", "RuntimeError: DataLoader worker"),
}

FAILS = """
def lose_a_worker():
    from torch.utils.data import DataLoader, Dataset
    class Kills(Dataset):
        def __len__(self): return 8
        def __getitem__(self, i): os.kill(os.getpid(), signal.SIGKILL)
    list(DataLoader(Kills(), num_workers=1))
import atexit
start()
x = torch.ones(1000)
if rank == 2:
    atexit.register(time.sleep, 1)  # its end takes long
for i in range(1000):
    if rank == 2 and i == 5:
        now("failed")
        {end}
    dist.all_reduce(x)
"""


@pytest.mark.parametrize("end", ENDS)
def test_a_rank_that_raises_stays_in_the_job(end):
    """Within PyTorch's timeout, of half an hour by default."""
    how, reason = ENDS[end]
    ended = run_program(3, FAILS.format(end=how), timeout_s=1800)
    assert all(one.status != 0 for one in ended), ended
    for one in ended[:2]:
        text = re.search(r"DistBackendError: (.*)", one.output)
        assert text and f"rank 2 aborted the job: {reason}" in text[1], one
        assert one.at_s > ended[2].at_s, "it ended before the rank that failed"


# Under torchrun; the others wait in a collective, or compute.
SCRIPT = """
import os, sys, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
torch.set_num_threads(1)
dist.init_process_group("ropewalk")
rank, size = dist.get_rank(), dist.get_world_size()
culprit, others = (int(sys.argv[1]) + int(os.environ["TORCHELASTIC_RESTART_COUNT"])) % size, sys.argv[2]
model = DistributedDataParallel(torch.nn.Linear(300, 10))
for step in range(100):
    if step == 5 and rank == culprit:
        raise ValueError("a bad sample")
    if step == 5 and others == "compute":
        time.sleep(0.3 * rank)
    model(torch.ones(8, 300)).sum().backward()
"""


@pytest.mark.parametrize("culprit,others,restarts", [(3, "wait", 0), (1, "compute", 0), (2, "wait", 1)])
def test_torchrun_blames_a_rank_that_another_has_failed(tmp_path, culprit, others, restarts):
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(("ROPEWALK_", "MASTER_", "TORCHELASTIC_"))}
    done = subprocess.run(
        [*warm.python(), os.path.join(SCRIPTS, "torchrun"), "--nproc-per-node", "4",
         "--max-restarts", str(restarts), "--master-port", str(20000 + os.getpid() % 10000),
         "--no-python", *warm.python(), str(tmp_path / "script.py"), str(culprit), others],
        env=environment, timeout=150, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True)
    last = (culprit + restarts) % 4
    assert int(re.search(r"Root Cause.*?rank +: (\d+)", done.stdout, re.S)[1]) == last, done.stdout
    said = re.findall(r"DistBackendError: (.*)", done.stdout)
    assert all("aborted the job: ValueError: a bad sample" in text for text in said), done.stdout
    assert others == "compute" or said, done.stdout
