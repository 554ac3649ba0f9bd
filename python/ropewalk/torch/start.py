"""torch.distributed's start under launchers that do not set its variables."""
from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

import ropewalk

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

_TORCH_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def init_process_group(backend: str = "ropewalk", **options: Any) -> None:
    """torch.distributed.init_process_group(backend, **options), under any launcher.

    Where torchrun's variables are set, or init_method or store is given, it is just that. Else rank
    and size are found as ropewalk.Communicator() finds them (`ropewalk run`, Slurm, MPI), and the
    ranks meet in a store on rank 0's host.
    """
    import torch.distributed as dist

    by_torch = all(name in os.environ for name in _TORCH_VARIABLES)
    if not (by_torch or options.get("init_method") or options.get("store")):
        with ropewalk.Communicator() as comm:
            options.update(store=_store(comm), rank=comm.rank, world_size=comm.size)
    dist.init_process_group(backend=backend, **options)


def _store(comm: ropewalk.Communicator) -> Store:
    """Rank 0 keeps it, on a free port."""
    from torch._C._distributed_c10d import HashStore, TCPStore  # as torch.distributed has them

    if comm.size == 1:
        return HashStore()
    if comm.rank == 0:
        store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        _tell(comm, f"{_own_host()}:{store.port}")
        return store
    host, _, port = _tell(comm, "").rpartition(":")
    # The address at which this rank has just reached rank 0 is better than any guess of rank 0's.
    coordinator = os.environ.get("ROPEWALK_COORDINATOR", "").rpartition(":")[0]
    return TCPStore(coordinator.strip("[]") or host, int(port), is_master=False)


def _own_host() -> str:
    """As other hosts know it. A pod of Kubernetes they know by its name with the domain."""
    import socket

    is_pod = "JOB_COMPLETION_INDEX" in os.environ
    return socket.getfqdn() if is_pod else socket.gethostname()


def _tell(comm: ropewalk.Communicator, text: str) -> str:
    """Rank 0's text, on every rank."""
    line = np.zeros(512, np.uint8)
    said = text.encode()
    line[:len(said)] = np.frombuffer(said, np.uint8)
    comm.broadcast(line)
    return line.tobytes().rstrip(b"\0").decode()
