"""Makes the backend "ropewalk" known to torch.distributed.

PyTorch finds `register` by its entry point and calls it when it is imported, so this module stands
apart from the package: it imports nothing else, and raises nothing, before the backend is asked for.
"""
import functools
import os
import warnings

NAME = "ropewalk"


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
    from ropewalk import process_end
    from ropewalk.torch import build

    extension = build.load()
    _let_ddp_allocate()
    process_end.watch(extension.abort_all, extension.leave_all)
    return extension.ProcessGroupRopewalk(options.store, options.group_rank, options.group_size,
                                          options.timeout.total_seconds(), options.global_ranks_in_group,
                                          getattr(options, "enable_reconfigure", False))  # since 2.14


@functools.cache  # PyTorch loads the driver's library anew to count GPUs
def _let_ddp_allocate():
    """DDP then takes its buckets from allocateTensor: registered once, reached without a copy.

    PyTorch looks at this when the process makes its first DDP. Whoever has set it is right. Where
    there are GPUs it would change NCCL's buckets, too, so there it is left to the user.
    """
    import torch

    if torch.cuda.device_count() == 0:
        os.environ.setdefault("DDP_DISABLE_COMM_MEM", "0")
