"""Measures inside the machine of tools/rdma-vm: runs bench/compare there, booting once."""
import json
import pathlib
import subprocess
import tempfile

from comparison.measuring import say

ROUND_MINUTES_MAX = 60


def run_inside(root, under, rounds, options):
    """What bench/compare with these options, started there, finds: a dictionary.

    `under`: the command that the machine itself runs under."""
    say("booting the machine")
    with tempfile.TemporaryDirectory(prefix="compare-") as folder:
        path = pathlib.Path(folder) / "measured.json"
        done = subprocess.run([*under, root / "tools/rdma-vm", "--timeout",
                               f"{rounds * ROUND_MINUTES_MAX}m", "--no-avx", "--writable", folder, "--", root / "bench/compare", *options,
                               "--measure-into", path], stdin=subprocess.DEVNULL, check=False)
        if done.returncode != 0 or not path.exists():
            raise SystemExit(f"compare: tools/rdma-vm ended with status {done.returncode}")
        return json.loads(path.read_text(encoding="utf-8"))
