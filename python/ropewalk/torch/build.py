"""Compiles the extension for the PyTorch that is installed, once, and loads it.

torch's C++ classes change from one minor version to the next, so a binary serves one version only.
Wheels of Ropewalk bring that of one version (prebuild). Others are compiled when they are needed: the
binary is kept in ~/.cache/ropewalk (or $ROPEWALK_TORCH_CACHE), under a name that says for what it was
built. Ranks of one host that need it at the same time wait for the first.
"""
from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Iterable

import ropewalk

_MODULE = "_c10d"
_PACKAGE = Path(__file__).parent
_SOURCES = _PACKAGE / "csrc"
_loaded: ModuleType | None = None


def load() -> ModuleType:
    """The extension module; compiles it where it is not there yet. Raises RuntimeError."""
    global _loaded
    if _loaded is None:
        import torch  # noqa: F401 - its libraries must be there before the extension's

        with contextlib.suppress(ImportError):  # not there, or this PyTorch was built in another way
            _loaded = _import(_prebuilt())
        if _loaded is None:
            _loaded = _import(binary())
    return _loaded


def _import(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(_MODULE, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def prebuild() -> Path:
    """Compiles it into the package itself, which may be moved then. Raises RuntimeError."""
    target = _prebuilt()
    target.parent.mkdir(parents=True, exist_ok=True)
    library = os.path.relpath(os.path.dirname(ropewalk.get_library()), target.parent)
    folders = (_PACKAGE.parent, _torch_folder(), sysconfig.get_path("include"))
    _compile(target, [f"-ffile-prefix-map={folder}=." for folder in folders],
             ["-s", "-Wl,-rpath,$ORIGIN/" + library])
    return target


def _prebuilt() -> Path:
    """Where a wheel has it. PyTorch's builds of one version, for CPUs and GPUs, have the same classes."""
    import torch

    version, _, _ = torch.__version__.partition("+")
    name = f"torch-{version}-{sys.implementation.cache_tag}-abi{int(torch.compiled_with_cxx11_abi())}"
    return _PACKAGE / "prebuilt" / name / (_MODULE + ".so")


def binary() -> Path:
    """The file that was compiled here; compiles it where it is not there yet. Raises RuntimeError."""
    target = _cache() / _key() / (_MODULE + ".so")
    if target.exists():
        return _trusted(target)
    try:
        for folder in (_cache(), target.parent):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _trusted(target.parent)  # the compiler's files, too, are nobody else's to change
        # The lock goes with its holder, also when that is killed. It saves work only: where a file
        # system locks on each host alone, or not at all, the first to be ready counts.
        with open(target.parent / "lock", "a") as lock:
            with contextlib.suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX)
            if not target.exists():
                _announce(target)
                _compile(target, [], _run_paths())
    except OSError as error:
        raise RuntimeError(f"ropewalk: the backend for PyTorch cannot be kept in {target.parent}: "
                           f"{error}; set ROPEWALK_TORCH_CACHE to a folder of yours") from error
    return _trusted(target)


def _trusted(target: Path) -> Path:
    """What is loaded runs as this user: it, its folder and the cache must be nobody else's to change.
    Raises RuntimeError."""
    cache = _cache()
    for path in (target, *target.parents):
        status = path.stat()
        if status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o022:
            raise RuntimeError(f"ropewalk: others than this user can change {path}, from which the "
                               f"backend for PyTorch would be loaded: chmod 700 {path}, or remove "
                               "it, or set ROPEWALK_TORCH_CACHE to a folder of yours")
        if path == cache:
            break
    return target


def _cache() -> Path:
    given = os.environ.get("ROPEWALK_TORCH_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ropewalk"


def _key() -> str:
    """What the binary depends on, short enough for a name."""
    import torch

    digest = hashlib.sha256()
    headers = Path(ropewalk.get_include())
    for path in (*sorted(_SOURCES.iterdir()), *sorted(headers.rglob("*.h"))):
        digest.update(path.read_bytes())
    for part in (torch.__version__, torch.__file__, sys.version, ropewalk.__version__,
                 ropewalk.get_library()):
        digest.update(str(part).encode() + b"\0")
    return f"torch-{torch.__version__}-{sys.implementation.cache_tag}-{digest.hexdigest()[:12]}"


def _announce(target: Path) -> None:
    print(f"ropewalk: compiling the backend for PyTorch (about a minute, once): {target.parent}",
          file=sys.stderr, flush=True)


def _compile(target: Path, compile_flags: Iterable[str], link_flags: Iterable[str]) -> None:
    # All sources in one go: PyTorch's headers take longer than all else.
    first, *more = sorted(_SOURCES.glob("*.cc"))
    others = [part for path in more for part in ("-include", str(path))]
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        compiled, fresh = Path(folder) / "all.o", Path(folder) / target.name
        _run([*_compile_flags(), *compile_flags, *others, "-c", str(first), "-o", str(compiled)])
        _run(["-shared", str(compiled), *_link_flags(), *link_flags, "-o", str(fresh)])
        fresh.chmod(0o755)  # whatever the umask is
        # Never in place of a file that others have mapped.
        with contextlib.suppress(FileExistsError):
            os.link(fresh, target)


def _compile_flags() -> Iterable[str]:
    import torch

    yield from ("-std=c++20", "-O2", "-fPIC", "-fvisibility=hidden",
                f"-DTORCH_EXTENSION_NAME={_MODULE}",
                f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
                "-I" + ropewalk.get_include())
    headers = _torch_folder() / "include"
    for path in (headers, headers / "torch/csrc/api/include", sysconfig.get_path("include")):
        yield from ("-isystem", str(path))


def _link_flags() -> Iterable[str]:
    yield from (f"-L{_torch_folder() / 'lib'}", "-ltorch", "-ltorch_cpu", "-ltorch_python", "-lc10")
    yield ropewalk.get_library()


def _run_paths() -> Iterable[str]:
    for folder in (_torch_folder() / "lib", Path(ropewalk.get_library()).parent):
        yield f"-Wl,-rpath,{folder}"


def _torch_folder() -> Path:
    import torch

    return Path(torch.__file__).parent


def _run(arguments: list[str]) -> None:
    """The compiler, with these. Raises RuntimeError with what it said."""
    command = [*os.environ.get("CXX", "c++").split(), *arguments]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        failure = f"{' '.join(command)}\n{done.stdout}" if done.returncode != 0 else None
    except OSError as error:
        failure = f"cannot run {command[0]}: {error}; install g++ 12 or newer, or set CXX"
    if failure is not None:
        raise RuntimeError(f"ropewalk: the backend for PyTorch could not be compiled:\n{failure}")
