"""When to average, and what: the two policies of torch-distlearn and asynchronous elastic
averaging, over lists of arrays.

A list may also be a generator, and hold arrays of any shapes, the same on every rank, of one dtype:
float32, float64, float16 or bfloat16 (halves are computed in float32). Arrays are changed in place.
A step moves the whole list at once. Ranks may take different numbers of steps, also none. One
AllReduceSGD or AllReduceEA at a time may be between synchronizations on one communicator; an
AsyncEA is a communicator of its own; an ElasticAsyncEA takes over the one that it is given. After a failed step the
arrays of that call are as they were.

A policy has state where its arrays are the job's: that of a rank that was there as the job began, and any after a
resume() or a synchronization that has ended. One that is made in a later epoch, as a newcomer's, has none before. Where
nobody has any more, since all who had it have died before newcomers got it, resume() raises the same UnavailableError on
every rank. To go on, load a checkpoint, call declare_state() on the ranks that have, and resume() again.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Iterable, Optional

from . import _core
from .communicator import Communicator, dtype_name


class AllReduceSGD:
    """Synchronous data-parallel SGD."""

    def __init__(self, comm: Communicator) -> None:
        self._policy = _core.Sgd(comm._session)

    def sum_gradients(self, gradients: Iterable[Any]) -> int:
        """Sums `gradients` over the ranks that still step, and counts a step of this rank.

        Returns how many ranks contributed; those in synchronize_parameters() do not.
        """
        return self._policy.sum_gradients(list(gradients))

    def sum_and_normalize_gradients(self, gradients: Iterable[Any]) -> int:
        """The same, then divides by the number of contributors where that is above 1."""
        return self._policy.sum_and_normalize_gradients(list(gradients))

    def synchronize_parameters(self, parameters: Iterable[Any]) -> None:
        """Puts the parameters of the rank with most steps on every rank, bit for bit.

        Until every rank has called it, this rank adds zeros to the others' steps. The lowest rank
        wins a tie; with no step anywhere since the last time, rank 0.
        """
        self._policy.synchronize_parameters(list(parameters))

    def resume(self, comm: Communicator, parameters: Iterable[Any]) -> None:
        """Goes on with `comm`, which shrink() or grow() gave, on all of its ranks.

        All have the parameters of the rank with most steps then, of those that have state, whichever had finished
        the step in which a rank was lost.
        """
        self._policy.resume(comm._session, list(parameters))

    def declare_state(self) -> None:
        """This rank's parameters are the job's from now on: of a checkpoint, or of sync_state().

        Of several ranks that declare other states resume() takes one.
        """
        self._policy.declare_state()


class AllReduceEA:
    """Elastic averaging (Zhang, Choromanska, LeCun 2015), synchronous form.

    Averages every `tau`-th step (>= 1) with moving rate `alpha` (0 < alpha < 1). It moves stably
    while alpha * (size + 1) < 2; the paper takes alpha = 0.9 / size.
    """

    def __init__(self, comm: Communicator, tau: int, alpha: float) -> None:
        self._policy = _core.Ea(comm._session, tau, alpha)

    def average_parameters(self, parameters: Iterable[Any]) -> None:
        """Call after every local step; at every tau-th, pulls parameters and center together.

        delta = alpha * (parameters - center); parameters -= delta; center += sum of deltas. The
        first call sets center = parameters.
        """
        self._policy.average_parameters(list(parameters))

    def synchronize_center(self, parameters: Iterable[Any]) -> None:
        """Takes part in the others' averaging until every rank has called it.

        Then the center is broadcast from rank 0, and steps are counted from 0 again.
        """
        self._policy.synchronize_center(list(parameters))

    def synchronize_parameters(self, parameters: Iterable[Any]) -> None:
        """Waits likewise; then the parameters of rank 0 become everybody's, and the center."""
        self._policy.synchronize_parameters(list(parameters))

    def resume(self, comm: Communicator, parameters: Iterable[Any]) -> None:
        """Goes on with `comm`, which shrink() or grow() gave, on all of its ranks.

        All have the center of the rank that has ended most rounds then. Who had none, as a newcomer, gets it as its
        `parameters`; where nobody has one it is those of the lowest rank that has state. The others' stay as they are.
        """
        self._policy.resume(comm._session, list(parameters))

    def declare_state(self) -> None:
        """This rank's parameters are the job's from now on: of a checkpoint, or of sync_state().

        They become the center where nobody has one.
        """
        self._policy.declare_state()


class AsyncEA:
    """Elastic averaging, asynchronous form: nobody waits for a slow rank.

        with ropewalk.AsyncEA(comm, tau=10, alpha=0.2) as ea:
            ea.synchronize_parameters(parameters)     # all start from those of rank 0
            for batch in data:
                step(batch)
                ea.average_parameters(parameters)     # at every tenth: one round trip
            ea.synchronize_parameters(parameters)     # the center, the same bits on every rank

    The center is there once, cut into parts that lie with all ranks, or with the first `servers`
    ranks alone, which do not work but call serve(); take these beyond some hundred ranks, since else
    each rank has 0.7 MB and two open files for every other one. Each rank answers the others from a thread of
    its own, also while it computes or sleeps. An update is applied once.

    Collective, on all ranks alike: the constructor, synchronize_*(), center(), resume() and close(). They wait
    for the slowest rank, however long it takes, as long as it lives.
    """

    def __init__(self, comm: Communicator, tau: int, alpha: float, *, dtype: Any = "float32",
                 servers: int = 0, replicated: bool = True) -> None:
        """`dtype` is that of all arrays; `tau` and `alpha` as for AllReduceEA.

        `replicated`: each worker keeps the center as its last exchange has left it, so that resume() can
        restore what a rank that has died had. It costs memory as large as the parameters.
        """
        self._policy = _core.AsyncEa(comm._session, dtype_name(dtype), tau, alpha, servers, replicated)

    def __enter__(self) -> AsyncEA:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        if error is None:
            self.close()
        else:
            self._policy.abandon()

    def average_parameters(self, parameters: Iterable[Any]) -> bool:
        """Call after every local step; at every tau-th, pulls parameters and center together.

        delta = alpha * (parameters - center); center += delta; parameters -= delta, element by
        element with the center as it is just then. True when it has exchanged. Not collective; not
        before the first synchronization.
        """
        return self._policy.average_parameters(list(parameters))

    def synchronize_center(self, parameters: Iterable[Any]) -> None:
        """Waits for every rank; then the center has all their exchanges. Steps count from 0 again.

        `parameters` are never changed. The first call of this or of synchronize_parameters() makes
        the center: the parameters of the first rank that works.
        """
        self._policy.synchronize_center(list(parameters))

    def synchronize_parameters(self, parameters: Iterable[Any]) -> None:
        """The same; then the parameters of every rank become the center, bit for bit."""
        self._policy.synchronize_parameters(list(parameters))

    def center(self, out: Iterable[Any]) -> None:
        """Waits for every rank and writes the center into the arrays `out`. Steps count on."""
        self._policy.center(list(out))

    def serve(self) -> None:
        """Servers only: answers until the workers close their policies."""
        self._policy.serve()

    def resume(self, comm: Communicator, parameters: Iterable[Any] = ()) -> int:
        """Goes on with `comm`, which shrink() gave, on all of its ranks.

        The center has every exchange that has ended on a rank that is left, once. Ranks that are new, or
        had no center yet, get the center as their `parameters` (where nobody has one, those of the first
        rank that works and has state); the others' stay as they are. Servers go on as servers and give none; with none
        left every rank owns a part.

        An exchange that has raised on this rank may be in the center, whole or in pieces, once. Returns of
        how many parameters that is so. Raises UnavailableError on every rank where a part of the center is
        lost (see `replicated`); then a synchronization makes a new one.
        """
        return self._policy.resume(comm._session, list(parameters))

    def declare_state(self) -> None:
        """This rank's parameters are the job's from now on: of a checkpoint, or of sync_state().

        They become the center where nobody has one.
        """
        self._policy.declare_state()

    def close(self) -> None:
        """Waits until every rank calls it; the communicator's close() calls it.

        A `with` block calls it; where an exception ends the block it does not wait, and the other
        ranks get AbortedError.
        """
        self._policy.close()


class ElasticAsyncEA:
    """Asynchronous elastic averaging in a job whose members come and go: nobody has a part in that
    but a thread of the library on each member.

        parameters = ...                              # and whatever else takes time, first
        with ropewalk.ElasticAsyncEA(ropewalk.Communicator(), parameters, tau=10, alpha=0.2) as ea:
            while ea.steps < steps:
                step(parameters)
                ea.average_parameters(parameters)     # at every tenth: one round trip
            ea.finish(parameters)                     # the center, the same bits on every rank

    A member that dies is left out, and the center restored; a process that waits to join
    (Communicator(join_running=True)) is taken in as soon as a member has heard of it. That takes
    milliseconds, however long a step is. An exchange that comes meanwhile waits for its end; steps
    between exchanges wait for nothing.

    No call raises because another member has died or left. What ends the policy on this rank is
    raised by the call under way and all later ones: NoQuorumError where too few are left, and what
    else is not a death. The communicator is for nothing else from then on.
    """

    def __init__(self, comm: Communicator, parameters: Iterable[Any], tau: int, alpha: float, *,
                 timeout: float = 30.0, has_state: bool = False) -> None:
        """Collective: a founder's `parameters` become those of rank 0, a newcomer's the center.

        Members wait for a newcomer from its admission until it is here. `tau` and `alpha` as for
        AllReduceEA. `timeout`: seconds, of a change of the members, all tries together; who does not answer
        is waited for half of it. `has_state`: a newcomer's parameters are of a checkpoint, and become the center
        where all who had it have died before newcomers got it; where none has state that raises UnavailableError.
        """
        self._policy = _core.ElasticAsyncEa(comm._session, list(parameters), tau, alpha, timeout, has_state)

    def __enter__(self) -> ElasticAsyncEA:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        if error is None:
            self.leave()
        else:
            self._policy.abandon()

    def average_parameters(self, parameters: Iterable[Any]) -> bool:
        """Call after every local step; at every tau-th, pulls parameters and center together: True.

        When it returns the exchange is in the center, once, also where a change of the members has cut it
        off. Of pieces that the center had already then, the parameters have not moved.
        """
        return self._policy.average_parameters(list(parameters))

    @property
    def steps(self) -> int:
        """How many this rank has made; a newcomer begins with those of the member that has made most."""
        return self._policy.steps

    @property
    def epoch(self) -> int:
        """The number of the job's epoch: it grows with each change of the members."""
        return self._policy.epoch

    @property
    def rank(self) -> int:
        """This process's number among the members, until they change."""
        return self._policy.rank

    @property
    def size(self) -> int:
        """How many members there are, until they change."""
        return self._policy.size

    def finish(self, parameters: Iterable[Any]) -> None:
        """The end: waits until all members have come here or gone. Then `parameters` are the center."""
        self._policy.finish(list(parameters))

    def leave(self) -> None:
        """This member leaves alone, and the others go on. What it has brought stays in the center.

        A `with` block calls it; where an exception ends the block this rank is to the others as one that
        has died. After finish() it does nothing.
        """
        self._policy.leave()
