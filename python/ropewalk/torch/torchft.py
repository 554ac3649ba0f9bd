"""torchft's managers over Ropewalk: replicas come and go, and those that are left train on.

    from ropewalk.torch.torchft import ProcessGroupRopewalk

    manager = torchft.Manager(pg=ProcessGroupRopewalk(), ...)

Needs the package torchft (0.2 has been tried), which is not installed with this one.
"""
from __future__ import annotations

import contextlib
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Optional

import torch
import torch.distributed as dist
from torchft.process_group import ProcessGroupWrapper

from . import build

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

_Work: Any = dist.Work


class ProcessGroupRopewalk(ProcessGroupWrapper):  # type: ignore[misc]
    """A process group of CPU tensors that a Manager makes anew whenever its members change.
    `timeout`: of meeting, and of its calls."""

    def _create_pg(self, store: Store, rank: int, world_size: int) -> dist.ProcessGroup:
        backend = build.load().ProcessGroupRopewalk(store, rank, world_size,
                                                    self._timeout.total_seconds())
        kind = dist.ProcessGroup.BackendType.CUSTOM
        group = dist.ProcessGroup(store, rank, world_size)
        group._set_default_backend(kind)
        group._register_backend(torch.device("cpu"), kind, backend)
        return group

    def getBackendName(self) -> str:
        return "torchft-ropewalk"

    def allreduce(self, tensors: list[torch.Tensor], opts: object) -> Any:
        try:
            return _Allreduce(super().allreduce(tensors, opts))
        except dist.DistBackendError as error:
            return _Allreduce(None, error)


class _Allreduce(_Work):  # type: ignore[misc]
    """Its failure is in its future alone. There a Manager looks for it, and goes on with another
    quorum; where wait() raises, torchft's DistributedDataParallel ends instead."""

    def __init__(self, work: Any, error: Optional[Exception] = None) -> None:
        super().__init__()
        self._work, self._error = work, error

    def wait(self, timeout: Optional[timedelta] = None) -> bool:
        with contextlib.suppress(dist.DistBackendError):
            if self._work is not None:
                return bool(self._work.wait(*([timeout] if timeout else [])))
        return False

    def get_future(self) -> Any:
        if self._work is not None:
            return self._work.get_future()
        failed: torch.futures.Future[Any] = torch.futures.Future()
        failed.set_exception(self._error)
        return failed
