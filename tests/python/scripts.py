"""Runs a script on every rank: processes that begin and end as Python's do."""

import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass

_PRELUDE = """
import os, signal, sys, threading, time
import numpy as np
import ropewalk
rank, size, port, listener = map(int, sys.argv[1:])
def join(**options):
    if rank == 0:
        options["coordinator_fd"] = listener
    return ropewalk.Communicator(rank=rank, size=size, coordinator=f"127.0.0.1:{port}", **options)
"""


@dataclass
class Ended:
    status: int      # negative: the signal
    at_s: float      # on the monotonic clock
    output: str


def run_script(size, script, limit_s=60, options=(), given="", **environment):
    """What became of each rank, in order; AssertionError where one does not end. The script has `rank`, `size` and
    join(), which gives a communicator. `options` are the interpreter's, `given` is its input."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        numbers = [str(size), str(listener.getsockname()[1]), str(listener.fileno())]
        ranks = [subprocess.Popen([sys.executable, *options, "-c", _PRELUDE + script, str(rank), *numbers],
                                  pass_fds=[listener.fileno()], env={**_inherited(), **environment},
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True) for rank in range(size)]
    for process in ranks:
        process.stdin.write(given)
        process.stdin.close()
    deadline, ended_s = time.monotonic() + limit_s, [0.0] * size
    while not all(ended_s) and time.monotonic() < deadline:  # collects each as it ends
        for rank, process in enumerate(ranks):
            if not ended_s[rank] and process.poll() is not None:
                ended_s[rank] = time.monotonic()
        time.sleep(0.01)
    for process in ranks:
        process.kill()
    outputs = [process.stdout.read() for process in ranks]
    assert all(ended_s), f"ranks were still there after {limit_s} s:\n" + "\n".join(outputs)
    return [Ended(process.wait(), at_s, output)
            for process, at_s, output in zip(ranks, ended_s, outputs)]


def _inherited():
    return {name: value for name, value in os.environ.items() if not name.startswith("ROPEWALK_")}
