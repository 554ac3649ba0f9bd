"""The c10d backend "ropewalk" for torch.distributed.

With this package installed nothing needs to be imported: PyTorch finds the backend by its entry
point, so that

    torch.distributed.init_process_group(backend="ropewalk")

just works, under torchrun or with an explicit init_method; init_process_group() here does the same
under `ropewalk run` and other launchers too. A wheel has the extension for one version of PyTorch.
For others it is compiled when it is first needed, once for each version (a minute;
`python -m ropewalk.torch` does it beforehand).
"""
from ropewalk_c10d import register

from .start import init_process_group

__all__ = ["init_process_group", "register"]
