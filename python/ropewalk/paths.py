"""Where to find what other extensions are compiled against."""

from __future__ import annotations

import os

from . import _core


def get_include() -> str:
    """The folder to give to the compiler: `#include "ropewalk/communicator.h"` (C++20)."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "include")


def get_library() -> str:
    """The libropewalk.so that this process has loaded. Link it by its path, for example."""
    return os.path.realpath(_core.library_path())
