"""all_reduce that waits for nobody longer than it is told to."""

from __future__ import annotations

import operator
from types import TracebackType
from typing import Any, Optional

from . import _core
from .communicator import Communicator, dtype_name


class PartialAllReduce:
    """Sums in rounds of those who come in time; a thread of the library adds zeros for the others.

        with ropewalk.PartialAllReduce(comm, gradients.size) as reducer:
            for ... in ...:
                told = reducer.all_reduce(gradients, patience=0.002)
                parameters -= rate * gradients / told.total
            reducer.finish(gradients)

    Who comes late brings what it has to the round that is open then, and gets the sum of all rounds
    since its last call. So every contribution is in the sums of each rank once: after finish() all
    ranks have got the same in total, in another order of additions.

    Collective to make, with the same `count` of elements and dtype on every rank; any dtype. One
    thread at a time. After an error it is broken on every rank: after shrink() make the parameters
    equal again, and a new one. Arrays of calls that raise are as they were.
    """

    def __init__(self, comm: Communicator, count: int, dtype: Any = "float32") -> None:
        self._partial = _core.Partial(comm._session, operator.index(count), dtype_name(dtype))

    def __enter__(self) -> PartialAllReduce:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        if error is None:
            self.close()
        else:
            self._partial.abandon()

    def all_reduce(self, x: Any, patience: float) -> _core.PartialSum:
        """Brings x to the round that is open; x gets its sum, and that of rounds this rank has missed.

        The round is summed as soon as all have come that were in the one before, or `patience` seconds
        after this rank has come, or earlier where another rank has less. Ranks make any number of
        calls. Returns `contributions`, by rank, how many of its own x holds; their `total`; and
        `rounds`, how many x covers.
        """
        return self._partial.all_reduce(x, patience)

    def finish(self, x: Any) -> _core.PartialSum:
        """Waits until every rank calls it; x gets the sum of the rounds since this rank's last call."""
        return self._partial.finish(x)

    def close(self) -> None:
        """finish() without an array; nothing after it. The communicator's close() calls it.

        A `with` block calls it; where an exception ends the block it does not wait, and the other
        ranks get AbortedError.
        """
        self._partial.close()
