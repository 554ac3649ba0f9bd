"""`import torch` with the package there, broken, or not to be loaded."""

import os
import shutil
import subprocess
import sys

import pytest

import warm

START = """
import torch.distributed as dist
dist.init_process_group("ropewalk", store=dist.HashStore(), rank=0, world_size=1)
import torch
x = torch.ones(3)
dist.all_reduce(x)
dist.destroy_process_group()
print("summed")
"""


def python(program, command=(sys.executable,), **environment):
    return subprocess.run([*command, "-c", program], timeout=120, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env={**os.environ, **environment})


def test_torch_loads_no_more_than_it_needs():
    done = python("import torch, sys; print([name for name in sys.modules if 'ropewalk' in name], "
                  "torch.distributed.Backend.backend_list)")
    assert done.stdout.startswith("['ropewalk_c10d'] ['undefined'"), done.stdout
    assert "'ropewalk'" in done.stdout, done.stdout


def test_nothing_needs_to_be_imported():
    done = python(START)
    assert done.returncode == 0 and "summed" in done.stdout, done.stdout


@pytest.mark.parametrize("gpus, wanted", [(0, "0"), (1, None)])
def test_ddp_takes_buckets_from_the_backend_unless_nccl_would_too(gpus, wanted, monkeypatch):
    import ropewalk_c10d
    import torch

    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(os, "environ", {})
    ropewalk_c10d._let_ddp_allocate()
    assert os.environ.get("DDP_DISABLE_COMM_MEM") == wanted


def test_a_program_on_its_own_is_a_group_of_one():
    alone = START[START.index("import torch\n"):]
    done = python("import datetime, ropewalk.torch, torch.distributed as dist\n"
                  "ropewalk.torch.init_process_group(timeout=datetime.timedelta(seconds=9))\n"
                  "assert dist.get_world_size() == 1\n" + alone, warm.python())
    assert done.returncode == 0 and "summed" in done.stdout, done.stdout


def test_without_autoload():
    done = python("import torch, sys; assert 'ropewalk_c10d' not in sys.modules\n"
                  "import ropewalk.torch; ropewalk.torch.register()\n" + START,
                  TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert done.returncode == 0 and "summed" in done.stdout, done.stdout


@pytest.mark.parametrize("text", ["raise OSError('libropewalk.so: cannot open')", "def"])
def test_a_broken_package_harms_only_those_who_use_it(tmp_path, text):
    (tmp_path / "ropewalk").mkdir()
    (tmp_path / "ropewalk/__init__.py").write_text(text)
    other = "import torch; print(torch.ones(2).sum())\n" + START.replace('"ropewalk"', '"gloo"')
    done = python(other, PYTHONPATH=str(tmp_path))
    assert done.returncode == 0 and done.stdout == "tensor(2.)\nsummed\n", done.stdout
    done = python(START, PYTHONPATH=str(tmp_path))
    assert done.returncode == 1 and ("cannot open" in done.stdout or "SyntaxError" in done.stdout)


def test_no_compiler(tmp_path):
    done = python(START, warm.python(), ROPEWALK_TORCH_CACHE=str(tmp_path), CXX="/nowhere/g++")
    assert done.returncode == 1 and "RuntimeError" in done.stdout, done.stdout
    assert "could not be compiled" in done.stdout and "/nowhere/g++" in done.stdout
    assert "install g++" in done.stdout or "set CXX" in done.stdout


def test_a_prebuilt_extension_that_cannot_be_loaded_is_passed_over(tmp_path):
    (tmp_path / "_c10d.so").touch()
    done = python("import pathlib; from ropewalk.torch import build\n"
                  f"build._prebuilt = lambda: pathlib.Path({str(tmp_path / '_c10d.so')!r})\n" + START, warm.python())
    assert done.returncode == 0 and "summed" in done.stdout, done.stdout


def test_what_the_compiler_says_is_shown(tmp_path):
    compiler = tmp_path / "compiler"
    compiler.write_text("#!/bin/sh\necho out of order >&2\nexit 3\n")
    compiler.chmod(0o755)
    done = python(START, warm.python(), ROPEWALK_TORCH_CACHE=str(tmp_path / "cache"),
                  CXX=str(compiler))
    assert done.returncode == 1 and "out of order" in done.stdout, done.stdout


def test_a_group_that_may_write_by_default_gets_no_right_to_the_cache(tmp_path):
    compiler = tmp_path / "compiler"
    compiler.write_text("#!/bin/sh\nfor last; do :; done\nexec >\"$last\"\n")
    compiler.chmod(0o755)
    mask = os.umask(0o002)
    try:
        done = python("import torch; from ropewalk.torch import build; print(build.binary())",
                      ROPEWALK_TORCH_CACHE=str(tmp_path / "cache"), CXX=str(compiler))
    finally:
        os.umask(mask)
    assert done.returncode == 0, done.stdout


# What lay in the cache was loaded, whoever had put it there.
@pytest.mark.parametrize("folder", [True, False])
def test_what_others_can_change_is_not_loaded(tmp_path, folder):
    from ropewalk.torch import build

    mine = build.binary()
    cache = tmp_path / "cache"
    (cache / mine.parent.name).mkdir(mode=0o700, parents=True)
    shutil.copy(mine, cache / mine.parent.name)
    assert "summed" in python(START, warm.python(), ROPEWALK_TORCH_CACHE=str(cache)).stdout
    theirs = cache / mine.parent.name
    if not folder:
        theirs /= mine.name
        theirs.unlink()
        theirs.write_bytes(b"")
    theirs.chmod(0o777)
    done = python(START, warm.python(), ROPEWALK_TORCH_CACHE=str(cache))
    assert done.returncode == 1, done.stdout
    assert f"others than this user can change {theirs}" in done.stdout, done.stdout
