"""What Ropewalk raises. Every message names the call and says what went wrong; at which rank, unless
an argument was refused; and what to do next, where that is known."""

from __future__ import annotations

import builtins
from collections.abc import Sequence


class Error(RuntimeError):
    """A call failed.

    After PeerLostError, TimeoutError, MismatchError, AbortedError and RevokedError the communicator
    is broken: outputs of unfinished calls have unspecified content, and every later call raises the
    same, but shrink(), which gives another of the ranks that are left, and agree().
    """

    def __init__(self, text: str, *, code: str = "", rank: int = -1,
                 peers: Sequence[int] = (), operation: str = "", reason: str = "", advice: str = "") -> None:
        super().__init__(text)
        #: What kind: "invalid argument", "mismatch", "timeout", "peer lost", "refused",
        #: "unavailable", "exhausted", "protocol error", "system error", "aborted", "revoked" or
        #: "no quorum".
        self.code = code
        #: The rank that noticed, and has said so itself; or -1.
        self.rank = rank
        #: The ranks at fault, or that were waited for, ascending: several where a network has fallen
        #: into parts, for example, or where several have not made the call.
        self.peers = tuple(peers)
        #: The first of them, or -1.
        self.peer = self.peers[0] if self.peers else -1
        #: For example "all_reduce #17".
        self.operation = operation
        #: One sentence.
        self.reason = reason
        #: What to do next; may be empty.
        self.advice = advice

    @property
    def is_survivable(self) -> bool:
        """Whether the ranks that are left may go on with Communicator.shrink()."""
        return self.code in ("peer lost", "timeout", "aborted", "revoked")


class InvalidArgumentError(Error, ValueError):
    """An argument is wrong. Nothing was sent, and the communicator is as it was."""


class MismatchError(Error):
    """Ranks called different operations, sizes, types or orders."""


class TimeoutError(Error, builtins.TimeoutError):
    """A deadline passed."""


class PeerLostError(Error):
    """A rank died, was cut off, stopped answering or left: `peer`; or several: `peers`."""


class RefusedError(Error):
    """Wrong key, wrong job or wrong version."""


class UnavailableError(Error):
    """The transport, algorithm or device asked for is not there."""


class ExhaustedError(Error, MemoryError):
    """Memory, descriptors or a limit ran out."""


class ProtocolError(Error):
    """A peer sent bytes that make no sense."""


class SystemCallError(Error):
    """A system call failed."""


class AbortedError(Error):
    """The job was aborted, here or elsewhere."""


class RevokedError(Error):
    """The epoch was ended; shrink() makes the next."""


class NoQuorumError(Error):
    """Too few ranks were left, or reached, to go on."""


_CLASSES: dict[str, type[Error]] = {
    "invalid argument": InvalidArgumentError,
    "mismatch": MismatchError,
    "timeout": TimeoutError,
    "peer lost": PeerLostError,
    "refused": RefusedError,
    "unavailable": UnavailableError,
    "exhausted": ExhaustedError,
    "protocol error": ProtocolError,
    "system error": SystemCallError,
    "aborted": AbortedError,
    "revoked": RevokedError,
    "no quorum": NoQuorumError,
}


def from_failure(code: str, text: str, rank: int, peers: Sequence[int], operation: str, reason: str,
                 advice: str) -> Error:
    """The exception for a failure of the C++ library."""
    return _CLASSES.get(code, Error)(text, code=code, rank=rank, peers=peers, operation=operation,
                                     reason=reason, advice=advice)


def invalid_argument(operation: str, reason: str, advice: str) -> Error:
    """The exception for an argument that was refused before C++ saw it."""
    text = f"{operation}: {reason} [invalid argument]; {advice}"
    return from_failure("invalid argument", text, -1, (), operation, reason, advice)
