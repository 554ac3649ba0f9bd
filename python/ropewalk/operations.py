"""How values are combined, and by which algorithm."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import Optional, Union

from . import _core
from .errors import invalid_argument


class Op(str, enum.Enum):
    """A reduction. Every method takes its value, a plain string, too."""

    SUM = "sum"
    PROD = "prod"
    #: A NaN on any rank gives NaN.
    MIN = "min"
    #: A NaN on any rank gives NaN.
    MAX = "max"
    #: The sum, then divided by the number of ranks; integers truncate toward zero.
    AVG = "avg"


@dataclass(frozen=True)
class ScaledSum:
    """A sum of every rank's input times that rank's own factor. Make it with scaled_sum()."""

    factor: float


def scaled_sum(factor: float) -> ScaledSum:
    """The reduction that multiplies this rank's input by `factor` first; for floating types."""
    if not math.isfinite(factor):
        raise invalid_argument("scaled_sum", f"factor is {factor}", "give a finite number")
    return ScaledSum(float(factor))


class Algorithm(str, enum.Enum):
    """How a collective runs. Leave it out, and the planner chooses; same on every rank.

    RING, TREE and so on: a member for each name that the library knows.
    """

    _ignore_ = ["word"]
    AUTOMATIC = "auto"
    for word in _core.algorithms()[1:]:
        locals()[word.upper()] = word


OpLike = Union[Op, ScaledSum, str]
AlgorithmLike = Optional[Union[Algorithm, str]]


def kind_and_scale(operation: str, op: OpLike) -> tuple[str, float]:
    """What C++ wants of `op`; `operation` is named in the error."""
    if isinstance(op, ScaledSum):
        return "scaled_sum", op.factor
    try:
        return Op(op).value, 1.0
    except ValueError:
        raise invalid_argument(operation, f"op is {op!r}",
                               "use sum, prod, min, max, avg or ropewalk.scaled_sum(factor)"
                               ) from None


def algorithm_name(operation: str, algorithm: AlgorithmLike) -> Optional[str]:
    """What C++ wants of `algorithm`; `operation` is named in the error."""
    try:
        return None if algorithm is None else Algorithm(algorithm).value
    except ValueError:
        raise invalid_argument(operation, f"algorithm is {algorithm!r}",
                               f"use one of {', '.join(Algorithm)}") from None
