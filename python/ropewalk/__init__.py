"""Allreduce and the other collectives of distributed training.

Start at Communicator. Arrays are numpy arrays, CPU tensors with DLPack (PyTorch, JAX, ...) or
objects with the buffer protocol; they are never copied in silence.
"""

from . import _core
from ._core import StateReport, StateSync
from .communicator import Communicator
from .errors import (AbortedError, Error, ExhaustedError, InvalidArgumentError, MismatchError,
                     NoQuorumError, PeerLostError, ProtocolError, RefusedError, RevokedError,
                     SystemCallError, TimeoutError, UnavailableError)
from .operations import Algorithm, Op, ScaledSum, scaled_sum
from .partial import PartialAllReduce
from .paths import get_include, get_library
from .policies import AllReduceEA, AllReduceSGD, AsyncEA, ElasticAsyncEA
from .work import Plan, Work

__version__: str = _core.__version__

__all__ = [
    "AbortedError", "Algorithm", "AllReduceEA", "AllReduceSGD", "AsyncEA", "Communicator",
    "ElasticAsyncEA", "Error", "ExhaustedError", "InvalidArgumentError", "MismatchError", "NoQuorumError", "Op",
    "PartialAllReduce", "PeerLostError", "Plan", "ProtocolError", "RefusedError", "RevokedError", "ScaledSum",
    "StateReport", "StateSync", "SystemCallError", "TimeoutError", "UnavailableError", "Work", "__version__",
    "get_include", "get_library", "scaled_sum",
]
