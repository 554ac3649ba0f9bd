"""How a process that ends leaves its communicators.

Where an uncaught exception ends it, or sys.exit with a status that is not 0, they are aborted at once, with
the exception's text: before Python takes itself apart, which may last seconds. A process that ends because
another one has failed stays until that one's parent has seen its end, so that launchers, which take the first
to end for the cause, name the right one.

Uncaught exceptions come by sys.excepthook, which is chained; where a later hook does not call it, by
sys.last_value at the end. Of SystemExit Python tells nobody, nor does it tell atexit the status; but it
asks the exception for its `code` when no Python code runs any more, so `system_exit.cc` puts an attribute
in its place that tells. Before Python 3.12 sys.exit makes no exception to be asked, and is replaced by a
function that does. Workers of multiprocessing run finalizers while their exception is on its way.

Forked children, threads and interactive interpreters are no ends of the process: nothing happens there.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import traceback
from multiprocessing import util
from types import FrameType, TracebackType
from typing import Any, Callable, Iterable, NoReturn, Optional

from . import _core

#: Breaks communicators with a reason; gives the processes that had broken some of them before.
AbortAll = Callable[[str], Iterable[int]]
#: Leaves jobs, within so many seconds.
LeaveAll = Callable[[float], object]

# A process that ends leaves its groups, and stays so long at most for ranks that are still at work:
# they must not take it for dead.
_DEPARTURE_LIMIT_S = 30.0
# The end of the process that failed first is awaited so long, and so long after it that the parent sees it.
_CULPRIT_LIMIT_S = 10.0
_REAPING_LIMIT_S = 1.0
_POLL_S = 0.005

_hook: Any = None  # inherited by children
_current: Optional[_ProcessEnd] = None


class _ProcessEnd:
    """Of the process that makes it."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._abort: list[AbortAll] = []
        self._leave: list[LeaveAll] = []
        self._culprits: set[int] = set()
        # A worker that was forked in an except block still has its parent's exception.
        self._handled = sys.exc_info()[1]
        # Workers of multiprocessing run its finalizers, but nothing of atexit before Python 3.13.
        # Whichever comes first runs it, once, and not in children.
        atexit.register(util.Finalize(None, self._finish, exitpriority=0))

    def add(self, abort_all: AbortAll, leave_all: Optional[LeaveAll]) -> None:
        if abort_all not in self._abort:
            self._abort.append(abort_all)
            if leave_all is not None:
                self._leave.append(leave_all)

    def abort(self, error: BaseException) -> None:
        reason = describe(error)
        for abort_all in self._abort:
            self._culprits.update(abort_all(reason))

    def _finish(self) -> None:
        # Finalizers of a worker run while the exception that ends it is on its way.
        error = sys.exc_info()[1] or _unseen()
        if error is not None and error is not self._handled and is_failure(error):
            self.abort(error)
        for leave_all in self._leave:
            leave_all(_DEPARTURE_LIMIT_S)
        _await_ends(self._culprits)


def watch(abort_all: AbortAll, leave_all: Optional[LeaveAll] = None) -> None:
    """Has them called when this process ends: the first where it fails, the second in any case."""
    global _current
    if _current is None or _current.pid != os.getpid():
        _current = _ProcessEnd()
    _current.add(abort_all, leave_all)
    if _hook is None:
        _core.on_system_exit(_exits)
        if sys.version_info < (3, 12):
            setattr(sys, "exit", _exit)
        _chain_excepthook()


def describe(error: BaseException) -> str:
    """"ValueError: what it says"; for an exit also the exception that was being handled."""
    text = "".join(traceback.format_exception_only(type(error), error)).strip()
    cause = error.__context__
    if isinstance(error, SystemExit) and cause is not None:
        return f"{describe(cause)}, then {text}"
    return text


def _chain_excepthook() -> None:
    global _hook
    before = sys.excepthook

    def excepthook(kind: type[BaseException], error: BaseException,
                   trace: Optional[TracebackType]) -> Any:
        if not _is_interactive() and not _goes_on(trace):
            _fails(error)
        return before(kind, error, trace)

    sys.excepthook = _hook = excepthook


def _unseen() -> Optional[BaseException]:
    """What has ended the program where a later hook has not called the one before it."""
    error, trace = getattr(sys, "last_value", None), getattr(sys, "last_traceback", None)
    while trace is not None and sys.excepthook is not _hook and not _is_interactive():
        frame = trace.tb_frame
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == "__main__":
            return error
        trace = trace.tb_next
    return None


def _exit(status: object = None, /) -> NoReturn:
    """As sys.exit; whose own exception is no object before Python 3.12, and asked for nothing."""
    raise SystemExit(status)


def _exits(error: SystemExit) -> None:
    if is_failure(error):
        _fails(error)


def _fails(error: BaseException) -> None:
    is_main = threading.current_thread() is threading.main_thread()
    if _current is not None and _current.pid == os.getpid() and is_main:
        _current.abort(error)


def is_failure(error: BaseException) -> bool:
    """Whether a process that it ends has failed."""
    if not isinstance(error, SystemExit):
        return True
    return not (error.code is None or (isinstance(error.code, int) and error.code == 0))


def _is_interactive() -> bool:
    return hasattr(sys, "ps1") or bool(sys.flags.inspect)


def _goes_on(trace: Optional[TracebackType]) -> bool:
    """True where somebody calls the hook who has caught the exception: a frame that it came through is
    still there."""
    if trace is None:
        return True
    left = set()
    while trace is not None:
        left.add(trace.tb_frame)
        trace = trace.tb_next
    frame: Optional[FrameType] = sys._getframe()
    while frame is not None and frame not in left:
        frame = frame.f_back
    return frame is not None


def _await_ends(processes: Iterable[int]) -> None:
    """Until their parents have collected them, within limits."""
    deadline = time.monotonic() + _CULPRIT_LIMIT_S
    for process in processes:
        limit = deadline
        while (state := _state(process)) and time.monotonic() < limit:
            if state in "ZX":
                limit = min(limit, time.monotonic() + _REAPING_LIMIT_S)
            time.sleep(_POLL_S)


def _state(process: int) -> str:
    """The letter that /proc has for it; empty where it is gone."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return ""
