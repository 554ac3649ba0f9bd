"""Makes the backend "ropewalk" known to torch.distributed.

PyTorch finds `register` by its entry point and calls it when it is imported, so this module stands
apart from the package: it imports nothing else, and raises nothing, before the backend is asked for.
"""
import atexit
import os
import warnings

NAME = "ropewalk"
# A process that ends leaves its groups, and stays so long at most for ranks that are still at work:
# they must not take it for dead.
_DEPARTURE_LIMIT_S = 30.0
_departure = None


def register() -> None:
    """Called again it does nothing. Never raises: an exception would break `import torch`."""
    try:
        import torch.distributed as dist

        if dist.is_available() and NAME.upper() not in dist.Backend._plugins:
            dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu"])
    except Exception as error:
        warnings.warn(f"ropewalk cannot be a backend of this PyTorch: {error}", stacklevel=2)


def _create(options, _):
    """One backend for one process group, as torch.distributed's extended API asks for it."""
    from ropewalk.torch import build

    extension = build.load()
    _let_ddp_allocate()
    _leave_at_the_end(extension.leave_all)
    return extension.ProcessGroupRopewalk(options.store, options.group_rank, options.group_size,
                                          options.timeout.total_seconds())


def _let_ddp_allocate():
    """DDP then takes its buckets from allocateTensor: registered once, reached without a copy.

    PyTorch looks at this when the process makes its first DDP. Whoever has set it is right. Where
    there are GPUs it would change NCCL's buckets, too, so there it is left to the user.
    """
    import torch

    if torch.cuda.device_count() == 0:
        os.environ.setdefault("DDP_DISABLE_COMM_MEM", "0")


def _leave_at_the_end(leave_all):
    """Once, in this process. Workers of multiprocessing run its finalizers, but nothing of atexit
    before Python 3.13."""
    global _departure
    from multiprocessing import util

    if _departure is not None:
        atexit.unregister(_departure)
        _departure.cancel()
    _departure = util.Finalize(None, leave_all, (_DEPARTURE_LIMIT_S,), exitpriority=0)
    atexit.register(_departure)
