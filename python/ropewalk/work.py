"""Handles for what was started."""

from __future__ import annotations

from typing import Any, Callable, Optional

from . import _core
from .errors import Error


class Work:
    """A started operation.

    Its arrays are kept alive, and must not be touched, until it has finished. Dropping it
    unfinished waits for it. After the end, test() and wait() go on to tell the same.
    """

    __slots__ = ("_result", "_work")

    def __init__(self, work: _core.Work, result: Any) -> None:
        self._work = work
        self._result = result

    def test(self) -> bool:
        """True when finished. Makes progress; raises Error when failed."""
        return self._work.test()

    def wait(self, timeout: Optional[float] = None) -> Any:
        """Waits until finished and returns what the call without async_op returns.

        `timeout` is in seconds; by default the communicator's. When it has passed,
        ropewalk.TimeoutError is raised and the communicator is broken, on every rank: to look
        whether an operation has finished, use test().
        """
        self._work.wait(timeout)
        return self._result

    def on_done(self, callback: Callable[[Optional[Error]], object],
                timeout: Optional[float] = None) -> None:
        """Calls `callback(None)` when it has finished, or `callback(error)` when it has failed.

        Once, from a thread of the communicator's; from this one, at once, where it has ended
        before. The callback may start operations and wait for them. At the deadline the operation
        fails as in wait(), unless a thread is waiting for it then.
        """
        self._work.on_done(callback, timeout)


class Plan:
    """An all_reduce fixed once, to be run many times on the same array.

    At most one run is under way at a time. Every rank makes and runs its plans in the same order.
    """

    __slots__ = ("_plan", "_result")

    def __init__(self, plan: _core.Plan, result: Any) -> None:
        self._plan = plan
        self._result = result

    @property
    def algorithm(self) -> str:
        """What the planner chose."""
        return self._plan.algorithm

    def run(self) -> Any:
        """Runs it and returns the array with the result."""
        self._plan.run()
        return self._result

    def start(self) -> None:
        """Starts a run, which goes on in the background."""
        self._plan.start()

    def test(self) -> bool:
        """True when no run is under way. Makes progress; raises Error when failed."""
        return self._plan.test()

    def wait(self, timeout: Optional[float] = None) -> Any:
        """Waits for the run and returns the array with the result; `timeout` as in Work.wait()."""
        self._plan.wait(timeout)
        return self._result
