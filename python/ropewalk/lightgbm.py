"""LightGBM's distributed training over a communicator, instead of its own sockets.

    import lightgbm
    import ropewalk.lightgbm

    with ropewalk.Communicator() as comm, ropewalk.lightgbm.use(comm) as network:
        data = lightgbm.Dataset(features, labels)    # this rank's rows
        booster = lightgbm.train({"objective": "binary", **network.parameters}, data)

All ranks get the same booster. When a rank is lost, the others' train() raises LightGBMError, which
names it.
"""

from __future__ import annotations

import ctypes
import threading
from types import TracebackType
from typing import Any, Optional

from . import _core
from .communicator import Communicator
from .errors import invalid_argument

try:
    from lightgbm.basic import _safe_call
    from lightgbm.libpath import _LIB
except ImportError as error:
    raise ImportError("ropewalk.lightgbm needs LightGBM 4: pip install lightgbm") from error

__all__ = ["Network", "use"]

# Of each thread: its Network. LightGBM calls with a pointer to the session, which this keeps.
_of_thread = threading.local()


class Network:
    """What use() gives; one a thread at a time. Ends with its `with` block, or by close()."""

    def __init__(self, comm: Communicator) -> None:
        if getattr(_of_thread, "network", None) is not None:
            raise invalid_argument("ropewalk.lightgbm.use", "this thread has a network already",
                                   "close() that one first")
        self._size = comm.size
        self._thread = threading.get_ident()
        reduce_scatter, all_gather = _core.lightgbm_functions()
        _safe_call(_LIB.LGBM_NetworkInitWithFunctions(
            ctypes.c_int(comm.size), ctypes.c_int(comm.rank), ctypes.c_void_p(reduce_scatter),
            ctypes.c_void_p(all_gather)))
        self._session = comm._session
        _core.lightgbm_use(self._session)
        _of_thread.network = self

    @property
    def parameters(self) -> dict[str, Any]:
        """For lightgbm.train: every rank has rows of its own."""
        return {"tree_learner": "data", "num_machines": self._size}

    def close(self) -> None:
        """LightGBM trains alone again on this thread. Boosters and data stay valid. The second call
        does nothing."""
        if threading.get_ident() != self._thread:
            raise invalid_argument("ropewalk.lightgbm", "another thread has called use()",
                                   "close the network on the thread that trains")
        if getattr(_of_thread, "network", None) is not self:
            return
        _of_thread.network = None
        _core.lightgbm_use(None)
        _safe_call(_LIB.LGBM_NetworkFree())

    def __enter__(self) -> Network:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()


def use(comm: Communicator) -> Network:
    """From now on LightGBM's trainers on this thread talk over `comm`, collectively: each rank
    calls this, then makes Datasets and trains alike, with the network's `parameters`.

    LightGBM keeps a network for each thread: call it on the thread that trains. Other calls of
    `comm` may be made before and after training, not meanwhile.
    """
    return Network(comm)
