"""Makes the backend "ropewalk" known to torch.distributed.

PyTorch finds `register` by its entry point and calls it when it is imported, so this module stands
apart from the package: it imports nothing else, and raises nothing, before the backend is asked for.
"""
import atexit
import warnings

NAME = "ropewalk"
# A process that ends leaves its groups, and stays so long at most for ranks that are still at work:
# they must not take it for dead.
_DEPARTURE_LIMIT_S = 30.0


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
    atexit.unregister(extension.leave_all)
    atexit.register(extension.leave_all, _DEPARTURE_LIMIT_S)
    return extension.ProcessGroupRopewalk(options.store, options.group_rank, options.group_size,
                                          options.timeout.total_seconds())
