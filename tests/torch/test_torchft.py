"""torchft's managers over Ropewalk: a replica is killed, started again, and has what the others have."""

import os
import re
import signal
import subprocess
import time

import pytest

import warm
from ropewalk.torch import build

torchft = pytest.importorskip("torchft")
build.load()  # once, not by every replica
LIMIT_S = 240

# The victim is killed within its third step with all, the first time. The others go on; all stop after
# five steps with the new one.
REPLICA = """
import datetime, hashlib, os, signal, sys
import torch, torch.distributed as dist
from torchft import DistributedDataParallel, Manager, Optimizer
from torchft.local_sgd import LocalSGD
from ropewalk.torch.torchft import ProcessGroupRopewalk
torch.set_num_threads(1)
number, lighthouse, is_first, victim = int(sys.argv[1]), sys.argv[2], sys.argv[3] == "first", %(victim)d
limit = datetime.timedelta(seconds=60)
store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
torch.manual_seed(number)  # the others' parameters come from one of them
model = torch.nn.Sequential(*[torch.nn.Linear(600, 600, bias=False) for _ in range(4)])  # 1.4 MB each
adam = torch.optim.AdamW(model.parameters())

def load(state):
    print("healed", flush=True)
    model.load_state_dict(state["model"])
    adam.load_state_dict(state["adam"])

manager = Manager(
    pg=ProcessGroupRopewalk(timeout=limit), min_replica_size=2, load_state_dict=load,
    state_dict=lambda: {"model": model.state_dict(), "adam": adam.state_dict()},
    replica_id=f"replica{number}", store_addr="localhost", store_port=store.port, rank=0,
    world_size=1, lighthouse_addr=lighthouse, timeout=limit, quorum_timeout=limit,
    connect_timeout=limit, use_async_quorum=%(asynchronous)s)

before_loss, is_after_loss, after_loss = 0, not is_first, 0  # steps of all three
whole_quorum = None  # the first with all three; the new replica may be in the very next

def is_over():
    return after_loss == 5

def meet():  # who goes before all have committed their last step may take it from them
    manager.start_quorum()
    manager.wait_quorum()

def dies():
    if is_first and number == victim and before_loss == 2:
        manager.wait_quorum()
        os.kill(os.getpid(), signal.SIGKILL)

def count(before):
    global before_loss, is_after_loss, after_loss, whole_quorum
    if manager.current_step() == before:
        return  # it was not committed
    is_whole = manager.num_participants() == 3
    if is_whole and whole_quorum is None:
        whole_quorum = manager._quorum_id
    is_after_loss = is_after_loss or whole_quorum not in (None, manager._quorum_id)
    after_loss += is_whole and is_after_loss
    before_loss += is_whole and not is_after_loss

def forward(module):
    torch.manual_seed(100 * manager.current_step() + number)
    return module(torch.randn(8, 600)).square().mean()

%(training)s
meet()
digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters()))
print("ended with", digest.hexdigest(), "at step", manager.current_step(), flush=True)
manager.shutdown(wait=False)
os._exit(0)
"""
DDP = """
ddp = DistributedDataParallel(manager, model, bucket_cap_mb=1)
optimizer, buckets, allreduce = Optimizer(manager, adam), 0, manager.allreduce

def count_buckets(*args, **kwargs):
    global buckets
    buckets += 1
    return allreduce(*args, **kwargs)

manager.allreduce = count_buckets
while not is_over():
    before = manager.current_step()
    optimizer.zero_grad()
    loss = forward(ddp)
    dies()
    buckets = 0
    loss.backward()
    assert buckets == 4, buckets
    optimizer.step()
    count(before)
"""
LOCAL_SGD = """
with LocalSGD(manager, model, adam, sync_every=2):
    while not is_over():
        before = manager.current_step()
        adam.zero_grad()
        forward(model).backward()
        dies()
        adam.step()
        count(before)
"""


class Replicas:
    def __init__(self, folder, program, transport):
        self.folder, self.program, self.transport = folder, program, transport
        self.lighthouse = torchft._torchft.LighthouseServer(
            bind="127.0.0.1:0", min_replicas=2, join_timeout_ms=10_000, heartbeat_timeout_ms=3000)
        self.processes = {}

    def start(self, number, which):
        with open(self.folder / f"{number}-{which}", "w") as log:
            self.processes[number, which] = subprocess.Popen(
                [*warm.python(), "-c", self.program, str(number), self.lighthouse.address(), which],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                env={**os.environ, "ROPEWALK_TRANSPORT": self.transport})

    def output(self, number, which):
        return (self.folder / f"{number}-{which}").read_text()

    def wait(self, number, which, deadline):
        """Its exit code."""
        try:
            return self.processes[number, which].wait(max(0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise AssertionError("\n".join(
                f"{one}:\n{self.output(*one)[-3000:]}" for one in self.processes)) from None

    def end(self):
        for process in self.processes.values():
            process.kill()
            process.wait()
        self.lighthouse.shutdown()


# A death in a step of several buckets ended DDP on the others.
@pytest.mark.parametrize("training, victim, transport", [
    ("DDP", 1, "shm"), ("DDP", 0, "tcp"), ("LOCAL_SGD", 0, "shm"), ("LOCAL_SGD", 1, "tcp")])
def test_a_replica_is_killed_and_heals(training, victim, transport, tmp_path):
    program = REPLICA % {"training": globals()[training], "asynchronous": training == "DDP", "victim": victim}
    replicas = Replicas(tmp_path, program, transport)
    left = [number for number in range(3) if number != victim]
    deadline = time.monotonic() + LIMIT_S
    try:
        for number in range(3):
            replicas.start(number, "first")
        assert replicas.wait(victim, "first", deadline) == -signal.SIGKILL, replicas.output(victim, "first")
        replicas.start(victim, "second")
        ended = []
        for one in [*((number, "first") for number in left), (victim, "second")]:
            code, output = replicas.wait(*one, deadline), replicas.output(*one)
            assert code == 0, output
            ended.append(re.findall(r"ended with (\w+) at step (\d+)", output))
        assert "healed" in replicas.output(victim, "second")
        assert len(ended[0]) == 1 and ended[0] == ended[1] == ended[2], ended
    finally:
        replicas.end()
