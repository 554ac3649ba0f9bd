"""The examples, under both launchers; and on four hosts, where each rank loads PyTorch itself."""

import os
import re
import subprocess
import sys
import sysconfig

import pytest
import torch

import warm

EXAMPLES = os.path.join(os.path.dirname(__file__), "../../examples/torch")
SCRIPTS = sysconfig.get_path("scripts")
# Without these, so that a job that these tests run in is not joined.
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if not name.startswith(("ROPEWALK_", "MASTER_", "TORCHELASTIC_"))}
launchers = pytest.mark.parametrize("launcher", ["ropewalk", "torchrun"])


def run(launcher, example, *arguments, freezes=True):
    """As users do, but that PyTorch is loaded already, and is not taken apart where it `freezes`."""
    python = warm.python(freezes)
    program = [*python, os.path.join(EXAMPLES, example), *map(str, arguments)]
    if launcher == "ropewalk":
        command = [os.path.join(SCRIPTS, "ropewalk"), "run", "-n", "4", "--", *program]
    else:  # as many jobs as there are ports beside torchrun's own
        port = 10000 + os.getpid() % 10000
        command = [*python, os.path.join(SCRIPTS, "torchrun"), "--nproc-per-node", "2",
                   "--master-port", str(port), "--no-python", *program]
    done = subprocess.run(command, env=ENVIRONMENT, timeout=150, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    return done.stdout


def accuracy(output):
    return float(re.search(r"held-out accuracy ([\d.]+) %", output)[1])


@launchers
def test_ddp(launcher):
    assert accuracy(run(launcher, "ddp.py", "--epochs", 6, freezes=False)) > 88


def test_ddp_learns_the_same_as_over_gloo(tmp_path, capsys):
    """But for the order of sums, which is not gloo's."""
    learned = {}
    for backend in ("ropewalk", "gloo"):
        saved = tmp_path / backend
        output = run("ropewalk", "ddp.py", "--backend", backend, "--epochs", 8, "--save", saved)
        losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", output)]
        learned[backend] = accuracy(output), losses, torch.load(saved)
    own, others = learned.values()
    apart = max((value - others[2][name]).abs().max().item() for name, value in own[2].items())
    with capsys.disabled():
        print(f"\n4 ranks over ropewalk: accuracy {own[0]} %, loss {own[1][-1]}; over gloo: "
              f"{others[0]} %, {others[1][-1]}; weights differ by at most {apart:.1e}")
    assert own[0] == others[0] > 90
    assert len(own[1]) == 8 and own[1] == pytest.approx(others[1], abs=2e-3)
    assert own[2].keys() == others[2].keys() and apart < 1e-4


@launchers
def test_elastic_averaging(launcher):
    output = run(launcher, "elastic_averaging.py", "--epochs", 8)
    assert accuracy(output.splitlines()[-1]) > 85, output


def test_elastic_averaging_repeats():
    """Every run trains from the same first weights: of unlucky ones it learned below 85 %."""
    outputs = {run("ropewalk", "elastic_averaging.py", "--epochs", 2) for _ in range(2)}
    assert len(outputs) == 1, outputs


@launchers
def test_async_training(launcher, tmp_path):
    saved = tmp_path / "model.pt"
    first = run(launcher, "async_training.py", "--epochs", 8, "--save", saved)
    assert accuracy(first) > 85, first
    if launcher == "torchrun":
        return
    again = run(launcher, "async_training.py", "--epochs", 0, "--load", saved)
    assert accuracy(again) == accuracy(first)


def test_a_straggler_delays_nobody():
    """One sleeps for 0.3 s a step, for 22 steps."""
    output = run("ropewalk", "async_training.py", "--epochs", 1, "--slow", 0.3)
    seconds = {int(rank): float(s) for rank, s in
               re.findall(r"rank (\d) trained for ([\d.]+) s", output)}
    assert seconds[3] > 6.5 and max(seconds[rank] for rank in range(3)) < seconds[3] / 2, seconds


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, stdin=subprocess.DEVNULL,
                   stderr=subprocess.STDOUT, stdout=subprocess.PIPE)


@pytest.fixture
def hosts():
    """Four network namespaces with an address each, on one bridge in a fifth."""
    tag = f"rwt{os.getpid()}"
    names, bridge = [f"{tag}h{i}" for i in range(4)], f"{tag}b"
    made = []
    try:
        try:
            for name in [bridge, *names]:
                ip("netns", "add", name)
                made.append(name)
                ip("-n", name, "link", "set", "lo", "up")
            ip("-n", bridge, "link", "add", "br0", "type", "bridge")
        except (OSError, subprocess.CalledProcessError) as error:
            why = getattr(error, "stdout", None) or str(error).encode()
            pytest.skip(f"no network namespaces here: {why.decode().strip()}")
        ip("-n", bridge, "link", "set", "br0", "up")
        for i, name in enumerate(names):
            ip("-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", f"port{i}",
               "netns", bridge)
            ip("-n", name, "addr", "add", f"10.78.0.{i + 1}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", bridge, "link", "set", f"port{i}", "master", "br0", "up")
        yield names
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "del", name], check=False)


@pytest.mark.parametrize("example", ["async_training.py", "ddp.py"])
def test_four_hosts(hosts, example):
    ranks = []
    for rank, host in enumerate(hosts):
        environment = {**ENVIRONMENT, "ROPEWALK_RANK": str(rank), "ROPEWALK_SIZE": "4",
                       "ROPEWALK_COORDINATOR": "10.78.0.1:7777", "ROPEWALK_JOB_KEY": "0123456789abcdef" * 4}
        ranks.append(subprocess.Popen(
            ["ip", "netns", "exec", host, sys.executable, os.path.join(EXAMPLES, example),
             "--epochs", "8"], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True))
    try:
        outputs = [rank.communicate(timeout=150)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0] * 4, outputs
    assert accuracy(outputs[0]) > 85, outputs
