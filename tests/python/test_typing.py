"""What an editor or a type checker is told agrees with the code."""

import subprocess
import sys

import pytest


def test_every_function_is_typed(tmp_path):
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", "--strict", "--ignore-missing-imports",
               "-p", "ropewalk"]
    checked = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True)
    assert checked.returncode == 0, checked.stdout
