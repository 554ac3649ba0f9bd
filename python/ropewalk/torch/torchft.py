"""torchft's managers over Ropewalk: replicas come and go, and those that are left train on.

    from ropewalk.torch.torchft import ProcessGroupRopewalk

    manager = torchft.Manager(pg=ProcessGroupRopewalk(), ...)

Needs the package torchft (0.2 has been tried), which is not installed with this one.
"""
from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Optional

import torch
import torch.distributed as dist
from torchft.process_group import ProcessGroupWrapper

from . import build

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

_Work: Any = dist.Work
_LOG = logging.getLogger(__name__)


class ProcessGroupRopewalk(ProcessGroupWrapper):  # type: ignore[misc]
    """A process group of CPU tensors that a Manager makes anew whenever its members change.
    `timeout`: of meeting, and of its calls.

    What fails is told by errored() alone, which has the Manager give up the step and make the group
    anew. Where a call raised, or its future failed, torchft's DistributedDataParallel would end at
    the step's next bucket."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._failures: list[Exception] = []  # of this group; the next gets a list of its own

    def configure(self, *args: Any, **kwargs: Any) -> None:
        self._failures = []
        try:
            super().configure(*args, **kwargs)
        except RuntimeError as error:  # a member has ended since the quorum was made
            _LOG.warning("this group was not made: %s", error)
            self._failures.append(error)

    def errored(self) -> Optional[Exception]:
        return self._failures[0] if self._failures else None

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
        work = None
        if not self._failures:
            try:
                work = super().allreduce(tensors, opts)
            except dist.DistBackendError as error:
                self._failures.append(error)
        return _Allreduce(work, tensors, self._failures)


class _Allreduce(_Work):  # type: ignore[misc]
    """Ends well in any case: what fails is appended to `failures`. `work`: None where it has not begun."""

    def __init__(self, work: Any, tensors: list[torch.Tensor], failures: list[Exception]) -> None:
        super().__init__()
        self._work, self._tensors, self._failures = work, tensors, failures

    def wait(self, timeout: Optional[timedelta] = None) -> bool:
        try:
            if self._work is not None:
                self._work.wait(*([timeout] if timeout else []))
        except dist.DistBackendError as error:
            self._failures.append(error)
        return True

    def get_future(self) -> Any:
        if self._work is not None:
            return self._work.get_future().then(self._value_of)
        done: torch.futures.Future[Any] = torch.futures.Future()
        done.set_result(self._tensors)
        return done

    def _value_of(self, ended: torch.futures.Future[Any]) -> Any:
        try:
            return ended.value()
        except RuntimeError as error:
            self._failures.append(error)
            return self._tensors
