"""torchft's managers over Ropewalk: replicas come and go, and those that are left train on.

    from ropewalk.torch.torchft import ProcessGroupRopewalk

    manager = torchft.Manager(pg=ProcessGroupRopewalk(), ...)

Needs the package torchft (0.2 has been tried), which is not installed with this one.
"""
from __future__ import annotations

import contextlib
from datetime import timedelta

import torch
import torch.distributed as dist
from torchft.process_group import ProcessGroupWrapper

from . import build


class ProcessGroupRopewalk(ProcessGroupWrapper):
    """A process group of CPU tensors that a Manager makes anew whenever its members change.
    `timeout`: of meeting, and of its calls."""

    def _create_pg(self, store: dist.Store, rank: int, world_size: int) -> dist.ProcessGroup:
        backend = build.load().ProcessGroupRopewalk(store, rank, world_size,
                                                    self._timeout.total_seconds())
        kind = dist.ProcessGroup.BackendType.CUSTOM
        group = dist.ProcessGroup(store, rank, world_size)
        group._set_default_backend(kind)
        group._register_backend(torch.device("cpu"), kind, backend)
        return group

    def getBackendName(self) -> str:
        return "torchft-ropewalk"

    def allreduce(self, tensors: list[torch.Tensor], opts: object) -> dist.Work:
        try:
            return _Allreduce(super().allreduce(tensors, opts))
        except dist.DistBackendError as error:
            return _Allreduce(None, error)


class _Allreduce(dist.Work):
    """Its failure is in its future alone. There a Manager looks for it, and goes on with another
    quorum; where wait() raises, torchft's DistributedDataParallel ends instead."""

    def __init__(self, work: dist.Work | None, error: Exception | None = None) -> None:
        super().__init__()
        self._work = work
        self._failed: torch.futures.Future[list[torch.Tensor]] | None = None
        if error is not None:
            self._failed = torch.futures.Future()
            self._failed.set_exception(error)

    def wait(self, timeout: timedelta | None = None) -> bool:
        with contextlib.suppress(dist.DistBackendError):
            if self._work is not None:
                return self._work.wait(*([timeout] if timeout else []))
        return False

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        return self._failed or self._work.get_future()
