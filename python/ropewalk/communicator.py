"""Start here: Communicator."""

from __future__ import annotations

import operator
import threading
import weakref
from types import TracebackType
from typing import Any, Callable, Mapping, Optional, Sequence, Union

import numpy as np

from . import _core, process_end
from .errors import invalid_argument
from .operations import AlgorithmLike, OpLike, algorithm_name, kind_and_scale
from .work import Plan, Work

Counts = Optional[Sequence[int]]

_joined: weakref.WeakSet[Communicator] = weakref.WeakSet()


def _abort_all(reason: str) -> list[int]:
    culprits = []
    for comm in list(_joined):
        culprit = comm._session.culprit_process()
        if culprit is not None:
            culprits.append(culprit)
        elif comm._takes_part():
            comm.abort(reason)
    return culprits


class Communicator:
    """Joins this process, as one rank of `size`, with the other ranks of the job.

        with ropewalk.Communicator() as comm:    # rank and size come from the launcher
            comm.all_reduce(gradients, "avg")    # in place

    Every rank must call the same operations, with the same counts, dtypes, ops and roots, in the
    same order; else every rank gets MismatchError that says who called what.

    Arrays are taken in place, never copied: numpy arrays, CPU tensors with DLPack, objects with
    the buffer protocol. What cannot be taken so (gaps between elements, another device, another
    dtype, a read-only output) raises InvalidArgumentError before anything is sent.

    Where a method has `out` and it is left out, a new numpy array is returned, of x's dtype; this
    needs x to be a numpy array. With `async_op=True` a method returns a Work at once, whose wait()
    gives what the method would have returned. `algorithm` (see Algorithm) is usually left out.

    Any thread may call; calls of several threads are serialized, and their order must then be
    made equal on all ranks by the caller. The interpreter's lock is released while a call waits.
    Ctrl-C raises KeyboardInterrupt when the call under way has ended, at the latest by `timeout`.

    An exception that ends the process, or sys.exit with a status that is not 0, aborts its
    communicators at once, with its text as the reason.

    A forked child has no part in the job: calls there raise InvalidArgumentError.
    """

    def __init__(self, rank: Optional[int] = None, size: Optional[int] = None,
                 coordinator: Optional[str] = None, coordinator_fd: Optional[int] = None,
                 key: Optional[str] = None, transport: Optional[str] = None,
                 secure: Optional[bool] = None, timeout: Optional[float] = None,
                 progress_thread: Optional[bool] = None,
                 progress_cpu: Optional[int] = None, join_timeout: Optional[float] = None,
                 elastic: Optional[bool] = None, join_running: Optional[bool] = None,
                 tie_breaker: Optional[bool] = None, quorum_min: Optional[int] = None,
                 admission_timeout: Optional[float] = None,
                 stop: Optional[threading.Event] = None) -> None:
        """Joins the job; returns when all ranks have.

        What is None comes from ROPEWALK_* variables, then from the launcher (`ropewalk run`,
        torchrun, Slurm, MPI), then from defaults (`ropewalk env` prints them).

        coordinator: "host:port" at which rank 0 listens.
        coordinator_fd: rank 0 only: a socket that listens there already. It stays the caller's.
        key: the job's secret, the same on every rank.
        transport: "auto", "shm", "tcp", "verbs" or "ucx".
        secure: seal what is sent between hosts, which takes TCP; default False.
        timeout: seconds, of every wait; default 30.
        progress_thread: drive started operations in the background; default True.
        progress_cpu: bind that thread to this CPU.
        join_timeout: seconds, until all ranks have come; default the timeout.
        elastic: processes may join while the job runs (see grow()); the same on every rank.
        join_running: join a job that runs and is elastic; returns once its ranks have called
            grow(). Rank and size do not count. TimeoutError after join_timeout without such a job.
        tie_breaker, quorum_min: who may go on after a failure (see shrink()): more than half of
            the ranks, or half with the lowest if tie_breaker; quorum_min at least; defaults False, 1.
        admission_timeout: seconds, with join_running: until the ranks have called grow(); default:
            no limit.
        stop: once another thread has set it this raises AbortedError, within some 0.1 s while it waits for others
            to come. Once all have joined it may succeed.

        A signal whose handler raises, as Ctrl-C, ends it, too.
        """
        self._adopt(_core.join(rank, size, coordinator, coordinator_fd, key, transport, secure,
                               timeout, progress_thread, progress_cpu, join_timeout, elastic,
                               join_running, tie_breaker, quorum_min, admission_timeout, stop))

    def _adopt(self, session: _core.Session) -> None:
        self._session = session
        _joined.add(self)
        process_end.watch(_abort_all)

    @property
    def rank(self) -> int:
        """This process's number, from 0 to size - 1."""
        return self._session.rank

    @property
    def size(self) -> int:
        """How many ranks the job has."""
        return self._session.size

    @property
    def local_rank(self) -> int:
        """This rank's number among those of this host."""
        return self._session.local_rank

    @property
    def local_size(self) -> int:
        """How many ranks this host has."""
        return self._session.local_size

    @property
    def transport(self) -> str:
        """How the ranks are reached: "shm", "tcp", "verbs", "shm+tcp", ..., or "self"."""
        return self._session.transport

    @property
    def closed(self) -> bool:
        """True after close()."""
        return self._session.closed

    def __repr__(self) -> str:
        state = "closed" if self.closed else self.transport
        return f"<ropewalk.Communicator: rank {self.rank} of {self.size}, {state}>"

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        if error is not None and process_end.is_failure(error) and self._takes_part():
            self.abort(process_end.describe(error))
        self.close()

    def close(self) -> None:
        """Waits for what was started here, then leaves the job; waits until all ranks leave.

        After it every call raises InvalidArgumentError; arrays from allocate() stay valid. A
        `with` block calls it; where an exception ends the block, the job is aborted first, so
        that the other ranks learn of it at once. In a forked child it does nothing.
        """
        self._session.close()

    def abort(self, reason: str) -> None:
        """Breaks the communicator and its AsyncEA policies on every rank: calls raise AbortedError.

        From any thread, also while others wait in a call. `reason` is part of the error.
        """
        self._session.abort(reason)

    def _takes_part(self) -> bool:
        return not (self.closed or self._session.forked)

    def split(self, color: Optional[int], key: int = 0) -> Optional[Communicator]:
        """A communicator for each `color`, of the ranks that gave it, in the order of (key, rank).

        Every rank must call it. Colors are 0 or more; a rank that gives None gets None. A part shares
        the connections and threads of this communicator, and costs no descriptor. Its deadlines,
        failures and order of calls are its own: it may fail while this one goes on, unless a rank is
        lost. It may outlive this one.
        """
        if color is not None:
            _whole_number("split", "color", color)
        numbers = [_of_32_bits("split", "color", -1 if color is None else color),
                   _of_32_bits("split", "key", key)]
        session = self._session.split(*numbers)
        if session is None:
            return None
        part = Communicator.__new__(Communicator)
        part._adopt(session)
        return part

    def create_group(self, ranks: Sequence[int], exchange: Callable[[str], Sequence[str]],
                     timeout: Optional[float] = None) -> Communicator:
        """A communicator of `ranks`, in this order: a call of theirs alone, this rank among them.

        `exchange(text)` gives what each of them has passed, in their order, by whatever means they
        have, such as a key-value store; it is called the same number of times by all. As a part that
        split() makes, it shares what this communicator has. `timeout`, in seconds: of its waits; else
        this one's.
        """
        session = self._session.create_group(list(ranks), lambda own: list(exchange(own)), timeout)
        group = Communicator.__new__(Communicator)
        group._adopt(session)
        return group

    @property
    def epoch(self) -> _core.Epoch:
        """Which epoch of the job this is, and how it came to be.

        `number`, from 0; `former_ranks`, by rank, in the epoch before, of newcomers -1; `departures`, each with rank,
        pid, host_name, and has_ended: its process has ended, else it did not answer in time;
        `reason`, why the epoch before ended; `change_time`, of shrink(), in seconds; `keeps_connections`: the members
        go on over those of the epoch before.
        """
        return self._session.epoch

    def revoke(self, reason: str) -> None:
        """Ends this epoch on every rank: calls raise RevokedError, until shrink(). Any thread."""
        self._session.revoke(reason)

    def shrink(self, timeout: Optional[float] = None) -> Communicator:
        """A communicator of the ranks that are left, in their order, after a failure or revoke().

            except ropewalk.Error as error:
                if not error.is_survivable:
                    raise
                comm = comm.shrink()

        All that are left call it; ranks may die meanwhile. This communicator is closed then. Raises
        NoQuorumError where this rank cannot go on: not more than half of the ranks were reached, or
        they have gone on without it. Waits half of `timeout` (seconds; default: the communicator's)
        for ranks of which nothing is known.
        """
        session = self._session.shrink(timeout)
        following = Communicator.__new__(Communicator)
        following._adopt(session)
        return following

    def grow(self, timeout: Optional[float] = None) -> Optional[Communicator]:
        """A communicator of all ranks and of those that wait to join, which are its last ranks.

            if step % 100 == 0:
                grown = comm.grow()
                if grown is not None:
                    comm = grown
                    policy.resume(comm, parameters)

        Collective, and mixes with shrink(). None, on all ranks, where nobody waits and nothing has
        failed: then this communicator goes on, else it is closed. Waits nearly all of `timeout` for
        ranks of which nothing is known.
        """
        session = self._session.grow(timeout)
        if session is None:
            return None
        following = Communicator.__new__(Communicator)
        following._adopt(session)
        return following

    def depart(self, timeout: Optional[float] = None) -> None:
        """Leaves the job for good, and lets the others go on: see docs/elastic.md.

        Collective with the others' shrink() or grow(), for which it ends this epoch. They need not be
        more than half. This communicator is closed then. Raises as shrink().
        """
        self._session.depart(timeout)

    @property
    def pending(self) -> int:
        """How many processes wait to join, as far as this rank has heard.

        Ranks may differ for a moment: where it decides, broadcast rank 0's.
        """
        return self._session.pending()

    def agree(self, bits: int, timeout: Optional[float] = None) -> tuple[int, list[int]]:
        """The AND of the 64 bits of all ranks that are left, and which those are.

        The same on all of them, whoever dies meanwhile; also after a failure. Raises as shrink().
        """
        return self._session.agree(bits, timeout)

    def start_sync_state(self, buffers: Mapping[str, Any], revision: int,
                         source: Union[str, int] = "newest") -> _core.StateSync:
        """Starts to give the state to ranks that lack it: see docs/elastic.md.

        Collective. All get the arrays of `source`: the highest revision ("newest"), what most ranks
        have ("majority"), or those of a rank (its number). Who has them sends, and may change them
        at once; others touch theirs after StateSync.wait(). Names and sizes are the same on all
        ranks, else all get MismatchError. Other calls may go on meanwhile.
        """
        return _core.start_sync_state(self._session, list(buffers.items()), revision, source)

    def sync_state(self, buffers: Mapping[str, Any], revision: int,
                   source: Union[str, int] = "newest",
                   timeout: Optional[float] = None) -> _core.StateReport:
        """start_sync_state(), and waits; without the copy that lets sources go on."""
        return _core.sync_state(self._session, list(buffers.items()), revision, source, timeout)

    def barrier(self) -> None:
        """Returns when every rank has called it."""
        self._session.barrier()

    def allocate(self, shape: Union[int, Sequence[int]], dtype: Any = "float32") -> Any:
        """A zeroed array on registered memory, which every transport reaches without a copy.

        For "bfloat16", which numpy lacks, an object that the methods here take and that other
        libraries read in place: torch.from_dlpack(comm.allocate(1024, "bfloat16")).
        The memory lives as long as the array and its views do, also after close().
        """
        extents = shape if isinstance(shape, Sequence) else (shape,)
        whole = [_whole_number("allocate", "shape", extent) for extent in extents]
        return self._session.allocate(whole, dtype_name(dtype))

    def all_reduce(self, x: Any, op: OpLike = "sum", out: Any = None, *,
                   algorithm: AlgorithmLike = None, async_op: bool = False) -> Any:
        """Combines every rank's x, element by element; in x itself, or in `out` if given.

        Returns the array with the result.
        """
        call = self._prepare("all_reduce", x, out, op=op, algorithm=algorithm)
        return self._issue([call], x if out is None else out, async_op)

    def all_reduce_committed(self, x: Any, op: OpLike = "sum", *,
                             timeout: Optional[float] = None) -> Any:
        """all_reduce of x, in place, on all ranks that are left or on none.

        When it raises on one rank it does on each, and x is on each as it was; then the epoch has ended.
        NoQuorumError is the exception: this rank cannot know what the others have. `timeout`, in
        seconds: of the sum; where that fails, those who are left agree within as much again. Returns x.
        """
        self._session.run_committed(self._prepare("all_reduce", x, None, op=op), timeout)
        return x

    def all_reduce_group(self, arrays: Sequence[Any], op: OpLike = "sum", *,
                         algorithm: AlgorithmLike = None, async_op: bool = False) -> Any:
        """Many all_reduces in place, as one operation; small ones of equal dtype are fused.

        Returns the arrays.
        """
        calls = [self._prepare("all_reduce", x, None, op=op, algorithm=algorithm) for x in arrays]
        return self._issue(calls, arrays, async_op)

    def plan_all_reduce(self, x: Any, op: OpLike = "sum", out: Any = None, *,
                        algorithm: AlgorithmLike = None) -> Plan:
        """Fixes an all_reduce, to be run many times: a run makes nothing anew."""
        call = self._prepare("all_reduce", x, out, op=op, algorithm=algorithm)
        return Plan(self._session.plan(call), x if out is None else out)

    def reduce_scatter(self, x: Any, op: OpLike = "sum", out: Any = None, *, counts: Counts = None,
                       algorithm: AlgorithmLike = None, async_op: bool = False) -> Any:
        """Combines every rank's x, of shape (size, ...), and gives rank r the part [r].

        With `counts`, x is flat: parts of counts[r] elements, one behind the other; the new array
        is flat too. Returns the array with this rank's part.
        """
        counts = self._check_counts("reduce_scatter", "counts", counts)
        if out is None:
            out = self._new_part("reduce_scatter", x, counts)
        call = self._prepare("reduce_scatter", x, out, op=op, counts=counts, algorithm=algorithm)
        return self._issue([call], out, async_op)

    def all_gather(self, x: Any, out: Any = None, *, counts: Counts = None,
                   algorithm: AlgorithmLike = None, async_op: bool = False) -> Any:
        """Gives every rank the x of all ranks, in rank order: an array of shape (size, *x.shape).

        With `counts`, rank r brings counts[r] elements, and the new array is flat.
        """
        counts = self._check_counts("all_gather", "counts", counts)
        if out is None:
            out = self._new_whole("all_gather", x, counts)
        call = self._prepare("all_gather", x, out, counts=counts, algorithm=algorithm)
        return self._issue([call], out, async_op)

    def broadcast(self, x: Any, root: int = 0, *, algorithm: AlgorithmLike = None,
                  async_op: bool = False) -> Any:
        """Copies the x of rank `root` into the x of every other rank. Returns x."""
        call = self._prepare("broadcast", x, None, root=root, algorithm=algorithm)
        return self._issue([call], x, async_op)

    def reduce(self, x: Any, op: OpLike = "sum", root: int = 0, out: Any = None, *,
               algorithm: AlgorithmLike = None, async_op: bool = False) -> Any:
        """Combines every rank's x into `out` (or a new array) of rank `root`; x stays as it is.

        Returns that array at the root and None elsewhere. In place: out=x.
        """
        at_root = self.rank == root
        if at_root and out is None:
            out = _new_array("reduce", x, np.shape(x))
        call = self._prepare("reduce", x, out, op=op, root=root, algorithm=algorithm)
        return self._issue([call], out if at_root else None, async_op)

    def gather(self, x: Any, root: int = 0, out: Any = None, *, counts: Counts = None,
               algorithm: AlgorithmLike = None, async_op: bool = False) -> Any:
        """As all_gather, except for rank `root` alone; the others get None."""
        counts = self._check_counts("gather", "counts", counts)
        at_root = self.rank == root
        if at_root and out is None:
            out = self._new_whole("gather", x, counts)
        call = self._prepare("gather", x, out, root=root, counts=counts, algorithm=algorithm)
        return self._issue([call], out if at_root else None, async_op)

    def scatter(self, x: Any, root: int = 0, out: Any = None, *, counts: Counts = None,
                algorithm: AlgorithmLike = None, async_op: bool = False) -> Any:
        """Gives rank r the part [r] of the root's x, of shape (size, ...).

        Only the root's x is looked at. `out` may be left out at the root alone: other ranks do not
        know the shape. With `counts`, x is flat: parts of counts[r] elements. Returns the array
        with this rank's part.
        """
        counts = self._check_counts("scatter", "counts", counts)
        if out is None and self.rank == root:
            out = self._new_part("scatter", x, counts)
        call = self._prepare("scatter", x, out, root=root, counts=counts, algorithm=algorithm)
        return self._issue([call], out, async_op)

    def all_to_all(self, x: Any, out: Any = None, *, counts: Counts = None,
                   recv_counts: Counts = None, algorithm: AlgorithmLike = None,
                   async_op: bool = False) -> Any:
        """Sends the part x[r] to rank r, and returns the parts received, in rank order.

        x has size parts of equal length. With `counts`, x is flat, its parts have counts[r]
        elements and the received ones recv_counts[r] (left out: the same); the new array is flat.
        """
        counts = self._check_counts("all_to_all", "counts", counts)
        recv_counts = self._check_counts("all_to_all", "recv_counts", recv_counts)
        if out is None:
            received = recv_counts or counts
            out = _new_array("all_to_all", x, (sum(received),) if received else np.shape(x))
        call = self._prepare("all_to_all", x, out, counts=counts, recv_counts=recv_counts,
                             algorithm=algorithm)
        return self._issue([call], out, async_op)

    def send(self, x: Any, to: int, *, async_op: bool = False) -> Any:
        """Sends x to the rank `to`, which receives as many elements of the same dtype."""
        return self._issue([self._prepare("send", x, None, root=to)], None, async_op)

    def recv(self, x: Any, source: int, *, async_op: bool = False) -> Any:
        """Receives into x what the rank `source` sends. Returns x."""
        return self._issue([self._prepare("recv", x, None, root=source)], x, async_op)

    def _prepare(self, collective: str, x: Any, out: Any, *, op: OpLike = "sum", root: int = 0,
                 counts: Counts = None, recv_counts: Counts = None,
                 algorithm: AlgorithmLike = None) -> _core.Call:
        kind, scale = kind_and_scale(collective, op)
        return self._session.prepare(collective, x, out, kind, scale, operator.index(root), counts,
                                     recv_counts, algorithm_name(collective, algorithm))

    def _issue(self, calls: list[_core.Call], result: Any, async_op: bool) -> Any:
        if async_op:
            return Work(self._session.start(calls), result)
        if len(calls) == 1:
            self._session.run(calls[0])
        else:
            self._session.start(calls).wait(None)
        return result

    def _check_counts(self, operation: str, name: str, counts: Counts) -> Optional[list[int]]:
        if counts is None:
            return None
        if len(counts) != self.size:
            raise invalid_argument(operation, f"{name} has {len(counts)} entries for {self.size} "
                                   "ranks", "give the length of every rank's part, in rank order")
        return [_whole_number(operation, name, count) for count in counts]

    def _new_part(self, operation: str, x: Any, counts: Counts) -> np.ndarray[Any, Any]:
        if counts is not None:
            return _new_array(operation, x, (counts[self.rank],))
        shape = np.shape(x)
        if not shape or shape[0] != self.size:
            raise invalid_argument(operation, f"x has shape {shape}, whose first dimension is not "
                                   f"{self.size}, the number of ranks",
                                   "reshape x to (size, ...), or give out or counts")
        return _new_array(operation, x, shape[1:])

    def _new_whole(self, operation: str, x: Any, counts: Counts) -> np.ndarray[Any, Any]:
        shape = (self.size, *np.shape(x)) if counts is None else (sum(counts),)
        return _new_array(operation, x, shape)


def _new_array(operation: str, x: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    if not isinstance(x, np.ndarray):
        raise invalid_argument(operation, f"out is None, and x is a {type(x).__name__}",
                               "give out: new arrays are made for numpy arrays only")
    return np.empty(shape, x.dtype)


def _whole_number(operation: str, name: str, value: Any) -> int:
    number = operator.index(value)
    if number < 0:
        raise invalid_argument(operation, f"{name} has {number}", "give 0 or more")
    return number


def _of_32_bits(operation: str, name: str, value: Any) -> int:
    number = operator.index(value)
    if not -1 << 31 <= number < 1 << 31:
        raise invalid_argument(operation, f"{name} is {number}", "give a number of 32 bits")
    return number


def dtype_name(dtype: Any) -> str:
    try:
        return str(np.dtype(dtype).name)
    except TypeError:  # "bfloat16", torch.bfloat16
        return str(dtype).rpartition(".")[2]
