"""A run of tools/netlab, and what came of it."""
import os
import pathlib
import shlex
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
NETLAB = ROOT / "tools/netlab"
PYTHON = ROOT / ".cache/python/bin/python"  # with the package, as tests/python/run installs it
ROPEWALK = ROOT / "build/tools/ropewalk"
# A rate at which 1 MiB takes a moment, and emulation no time.
RATE = "400mbit"


class Outcome:
    def __init__(self, *words, script=None, **variables):
        command = [str(NETLAB), *words]
        if script:
            command += ["--launcher", "none", "--", "sh", "-c", script]
        done = subprocess.run(command, cwd=ROOT, env=os.environ | variables, timeout=120, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.command = shlex.join(command)
        self.status, self.out, self.err = done.returncode, done.stdout, done.stderr

    def __str__(self):
        return f"\n{self.command}\nexit status {self.status}\n{self.out}\n-- stderr:\n{self.err}"
