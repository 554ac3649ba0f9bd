"""Ranks that are killed: the others form the next epoch, and learn on."""

import os
import signal
import socket
import threading
import time

import numpy as np
import pytest

import processes
import ropewalk
from ranks import LIMIT_S, Job, run_ranks


def go_on_after(comm, error):
    assert error.is_survivable
    with pytest.raises(type(error)):
        comm.barrier()
    following = comm.shrink()
    assert comm.closed and not following.closed
    assert following.epoch.number == comm.epoch.number + 1
    return following


def sums_until_someone_dies(comm, victim):
    own = comm.rank
    try:
        for step in range(1_000_000):
            if own == victim and step == 20:
                os.kill(os.getpid(), signal.SIGKILL)
            assert comm.all_reduce(np.ones(1000))[0] == comm.size
    except ropewalk.PeerLostError as error:
        assert error.peer == victim
        comm = go_on_after(comm, error)
    gone, = comm.epoch.departures
    assert gone.rank == victim and gone.has_ended and gone.pid > 0 and gone.host_name
    assert "rank %d" % victim in comm.epoch.reason and comm.epoch.change_time > 0
    assert comm.epoch.former_ranks[comm.rank] == own
    assert comm.all_reduce(np.ones(1000))[0] == comm.size == 3
    assert comm.agree(~(1 << comm.rank) & (2**64 - 1)) == (2**64 - 1 - 0b111, [0, 1, 2])
    comm.close()
    return comm.rank


@pytest.mark.parametrize("victim", [0, 2])
def test_a_killed_rank_is_left_behind(transport, victim):
    job = Job(4, sums_until_someone_dies, victim, transport=transport)
    outcomes = job.outcomes()
    job.end()
    assert outcomes.pop(victim)[0] == "died"
    assert outcomes == [("returned", rank) for rank in range(3)]


def ends_by_revoke(comm):
    try:
        if comm.rank == 1:
            comm.revoke("enough")
        while True:
            comm.barrier()
    except ropewalk.RevokedError as error:
        assert error.peer == 1 and "enough" in error.reason
        following = go_on_after(comm, error)
    assert following.size == 3 and following.epoch.departures == []
    following.close()


def test_a_revoked_epoch_ends_on_every_rank():
    run_ranks(3, ends_by_revoke)


def alone(comm, timeout):
    if comm.rank == 0:
        comm.barrier()  # both have joined
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(ropewalk.PeerLostError):
        while True:
            comm.barrier()
    begun = time.monotonic()
    with pytest.raises(ropewalk.NoQuorumError, match="1 of 2 members"):
        comm.shrink()
    return time.monotonic() - begun < timeout / 2


def test_half_of_the_ranks_is_no_quorum():
    job = Job(2, alone, LIMIT_S / 2)
    outcome = job.outcome(1)
    assert outcome == ("returned", True), outcome[1]
    job.end()


def alone_with_a_tie_breaker(comm):
    if comm.rank == 1:
        comm.barrier()  # both have joined
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(ropewalk.PeerLostError):
        while True:
            comm.barrier()
    comm = comm.shrink()
    return comm.size, float(comm.all_reduce(np.ones(3))[0])


def test_the_lowest_breaks_a_tie():
    job = Job(2, alone_with_a_tie_breaker, tie_breaker=True)
    outcomes = job.outcomes()
    job.end()
    assert outcomes[0] == ("returned", (1, 1.0)), outcomes[0]


def learns(comm, policy_of, victim):
    """Each step sets all parameters to a number that tells how many steps were made, and by whom."""
    parameters = [np.zeros(1000, np.float32), np.zeros(7, np.float32)]
    policy, steps, own = policy_of(comm), 0, comm.rank
    while steps < 60:
        try:
            if own == victim and steps == 30:
                os.kill(os.getpid(), signal.SIGKILL)
            if isinstance(policy, ropewalk.AllReduceSGD):
                gradients = [np.full_like(p, comm.rank + 1) for p in parameters]
                contributors = policy.sum_and_normalize_gradients(gradients)
                assert contributors == comm.size
                for p, g in zip(parameters, gradients):
                    assert (g == np.float32(comm.size * (comm.size + 1) / 2) / np.float32(comm.size)).all()
                    p += g
            else:
                for p in parameters:
                    p += own
                policy.average_parameters(parameters)
            steps += 1
        except ropewalk.Error as error:
            comm = go_on_after(comm, error)
            policy.resume(comm, parameters)
            assert comm.size == 3
            steps = int(comm.all_reduce(np.array([steps]), "max")[0])
    policy.synchronize_parameters(parameters)
    all_parameters = comm.all_gather(np.concatenate(parameters))
    comm.close()
    assert np.isfinite(all_parameters).all() and parameters[0][0] > 0
    return all((row == all_parameters[0]).all() for row in all_parameters)


@pytest.mark.parametrize("policy_of", [ropewalk.AllReduceSGD, lambda comm: ropewalk.AllReduceEA(comm, 3, 0.2)],
                         ids=["sgd", "ea"])
@pytest.mark.parametrize("victim", [0, 3])
def test_a_policy_goes_on_with_equal_parameters(transport, policy_of, victim):
    job = Job(4, learns, policy_of, victim, transport=transport)
    outcomes = job.outcomes()
    job.end()
    assert outcomes.pop(victim)[0] == "died"
    assert outcomes == [("returned", True)] * 3


def exchanges(comm, victim, servers):
    """Until three are left, and have exchanged again; the victim dies in the middle of it."""
    own, left, resumes = comm.rank, 20, True
    parameters = [np.full(100_000, own, np.float64), np.full(7, own, np.float64)]
    policy = ropewalk.AsyncEA(comm, 1, 0.5, dtype="float64", servers=servers)
    while left > 0:
        before = [p.copy() for p in parameters]
        try:
            if resumes:
                told = policy.resume(comm, parameters if own >= servers else ())
                assert 0 <= told <= 100_007
                if comm.size == 4 and own >= servers:  # a new policy: the parameters of the first that works
                    assert told == 0 and all((p == servers).all() for p in parameters)
                else:
                    assert all((p == b).all() for p, b in zip(parameters, before))
                resumes, before = False, [p.copy() for p in parameters]
                comm.barrier()  # everyone has the center
                if own == victim:
                    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGKILL)).start()
            if own < servers:
                policy.serve()
                break
            assert policy.average_parameters(parameters)
            for p in parameters:
                p += own
            left -= comm.size == 3
        except ropewalk.Error as error:
            assert all((p == b).all() for p, b in zip(parameters, before))
            comm = go_on_after(comm, error)
            resumes = True
    if own >= servers:
        center = [np.zeros_like(p) for p in parameters]
        policy.center(center)
        policy.synchronize_parameters(parameters)
        assert all((p == c).all() and (c > 0).all() for p, c in zip(parameters, center))
    policy.close()
    comm.close()
    return True


@pytest.mark.parametrize("victim, servers", [(0, 0), (2, 0), (0, 1), (1, 2), (3, 2)])
def test_an_asynchronous_policy_goes_on(transport, victim, servers):
    job = Job(4, exchanges, victim, servers, transport=transport)
    outcomes = job.outcomes()
    job.end()
    assert outcomes.pop(victim)[0] == "died"
    assert outcomes == [("returned", True)] * 3


STEPS = 200


def grows_and_shrinks(comm, victim, size_in_the_end):
    """A killed rank is replaced; the parameters tell how many steps were made, whoever made them."""
    parameters, step, resumes = np.zeros(100, np.float32), 0, comm.epoch.number > 0
    policy = ropewalk.AllReduceSGD(comm)
    while resumes or step < STEPS or comm.size < size_in_the_end:
        try:
            if resumes:
                policy.resume(comm, [parameters])
                step, resumes = int(comm.all_reduce(np.array([step]), "max")[0]), False
            if comm.epoch.number == 0 and comm.rank == victim and step == STEPS // 2:
                os.kill(os.getpid(), signal.SIGKILL)
            gradients = np.ones_like(parameters)
            policy.sum_and_normalize_gradients([gradients])
            parameters += gradients
            step += 1
            if comm.broadcast(np.array([comm.pending]), 0)[0] > 0:
                grown = comm.grow()
                assert grown is not None and comm.closed
                comm, resumes = grown, True
        except ropewalk.Error as error:
            assert error.is_survivable
            comm, resumes = comm.shrink(), True
    policy.synchronize_parameters([parameters])
    size = comm.size
    comm.close()
    return size, float(parameters.min()), float(parameters.max())


@pytest.mark.parametrize("victim", [0, 2])
def test_a_process_joins_in_place_of_a_killed_one(transport, victim):
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        options = dict(coordinator="127.0.0.1:%d" % listener.getsockname()[1], transport=transport,
                       coordinator_fd=listener.fileno(), timeout=LIMIT_S / 2, key="k", elastic=True)

        def member(rank):
            return grows_and_shrinks(ropewalk.Communicator(rank=rank, size=3, **options), victim, 3)

        def newcomer(rank):
            comm = ropewalk.Communicator(join_running=True, **options)
            assert comm.epoch.former_ranks[comm.rank] == -1 and comm.epoch.number == 2
            return grows_and_shrinks(comm, victim, 3)

        members = processes.Job(3, member, LIMIT_S)
        members.processes[victim].join(LIMIT_S)
        late = processes.Job(1, newcomer, LIMIT_S)
        outcomes = members.outcomes() + late.outcomes()
        members.end()
        late.end()
    assert outcomes.pop(victim)[0] == "died"
    for outcome, said in outcomes:
        assert outcome == "returned", said
        size, least, most = said
        assert size == 3 and least == most >= STEPS


@pytest.fixture
def late_options(transport):
    """Of a job that others join."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        yield dict(coordinator="127.0.0.1:%d" % listener.getsockname()[1], transport=transport,
                   coordinator_fd=listener.fileno(), timeout=LIMIT_S / 2, key="k", elastic=True)


@pytest.mark.parametrize("policy_of", [ropewalk.AllReduceSGD, lambda comm: ropewalk.AllReduceEA(comm, 1, 0.5),
                                       lambda comm: ropewalk.AsyncEA(comm, 1, 0.5)], ids=["sgd", "ea", "async"])
def test_newcomers_that_are_alone_have_no_state(late_options, policy_of):
    """The only member dies before they have its parameters."""
    def member(_):
        comm = ropewalk.Communicator(rank=0, size=1, **late_options)
        while comm.pending < 2:
            time.sleep(0.01)
        comm = comm.grow()
        comm.agree(0)
        os.kill(os.getpid(), signal.SIGKILL)

    def newcomer(_):
        comm = ropewalk.Communicator(join_running=True, **late_options)
        comm.agree(0)  # all have joined
        with pytest.raises(ropewalk.Error) as ended:
            while True:
                comm.barrier()
        comm = go_on_after(comm, ended.value)
        policy, parameters = policy_of(comm), [np.full(100, -1, np.float32)]
        with pytest.raises(ropewalk.UnavailableError, match="load a checkpoint"):
            policy.resume(comm, parameters)
        assert (parameters[0] == -1).all()
        if comm.rank == 1:
            parameters[0][:] = 7
            policy.declare_state()
        policy.resume(comm, parameters)
        comm.close()
        return float(parameters[0].min()), float(parameters[0].max())

    jobs = processes.Job(1, member, LIMIT_S), processes.Job(2, newcomer, LIMIT_S)
    outcomes = [outcome for job in jobs for outcome in job.outcomes()]
    for job in jobs:
        job.end()
    assert outcomes[0][0] == "died"
    assert outcomes[1:] == [("returned", (7.0, 7.0))] * 2


def uses_its_policy_first_in_resume(comm):
    """It was there as the job began, and has state, though the policy is made by the first list."""
    policy = ropewalk.AllReduceSGD(comm)
    if comm.rank == 0:
        comm.revoke("a test")
    with pytest.raises(ropewalk.RevokedError) as ended:
        while True:
            comm.barrier()
    parameters = [np.full(100, comm.rank, np.float32)]
    comm = go_on_after(comm, ended.value)
    policy.resume(comm, parameters)
    assert (parameters[0] == 0).all()
    comm.close()


def test_a_founder_has_state_before_its_first_step():
    run_ranks(2, uses_its_policy_first_in_resume)


def moves_at_its_own_pace(comm, victim):
    """Without a call that any of them makes for the others' sake."""
    rank, is_founder = comm.rank, comm.epoch.number == 0
    parameters = [np.full(50_000, rank, np.float64), np.full(7, rank, np.float64)]
    ea = ropewalk.ElasticAsyncEA(comm, parameters, tau=2, alpha=0.3)
    if is_founder and ea.epoch == 0:
        assert all((p == 0).all() for p in parameters)
    has_died = not is_founder
    while ea.steps < STEPS or not has_died or ea.size < 3:
        if is_founder and rank == victim and ea.steps == STEPS // 2:
            os.kill(os.getpid(), signal.SIGKILL)
        if is_founder and rank == (victim + 1) % 3 and ea.steps == STEPS // 2:
            time.sleep(0.5)  # it computes
        assert ea.average_parameters(parameters) == (ea.steps % 2 == 0)
        for p in parameters:
            p += 1
        has_died |= ea.epoch > 0
        time.sleep(0.001)
    ea.finish(parameters)
    ea.leave()
    with pytest.raises(ropewalk.InvalidArgumentError, match="it has finished"):
        ea.average_parameters(parameters)
    comm.close()
    return ea.size, [p.tobytes() for p in parameters]


@pytest.mark.parametrize("victim", [0, 2])
def test_an_elastic_policy_goes_on_by_itself(transport, victim):
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        options = dict(coordinator="127.0.0.1:%d" % listener.getsockname()[1], transport=transport,
                       coordinator_fd=listener.fileno(), timeout=LIMIT_S / 2, key="k", elastic=True)

        def member(rank):
            return moves_at_its_own_pace(ropewalk.Communicator(rank=rank, size=3, **options), victim)

        def newcomer(rank):
            return moves_at_its_own_pace(ropewalk.Communicator(join_running=True, **options), victim)

        members = processes.Job(3, member, LIMIT_S)
        members.processes[victim].join(LIMIT_S)
        late = processes.Job(1, newcomer, LIMIT_S)
        outcomes = members.outcomes() + late.outcomes()
        members.end()
        late.end()
    assert outcomes.pop(victim)[0] == "died"
    assert all(outcome == "returned" for outcome, _ in outcomes), outcomes
    sizes, bits = zip(*(said for _, said in outcomes))
    assert sizes == (3, 3, 3) and bits[0] == bits[1] == bits[2]


def leaves(comm, failing):
    rank, parameters = comm.rank, np.zeros(1000, np.float32)
    try:
        with ropewalk.ElasticAsyncEA(comm, [parameters], tau=1, alpha=0.5) as ea:
            ea.average_parameters([parameters])
            if rank == 2 and failing:
                raise RuntimeError("on its own")
            while rank < 2 and ea.size > 2:
                ea.average_parameters([parameters])
            if rank < 2:
                ea.finish([parameters])
    except RuntimeError:
        return failing
    return not failing or rank < 2


@pytest.mark.parametrize("failing", [False, True])
def test_a_member_of_an_elastic_policy_leaves_alone(failing):
    assert run_ranks(3, leaves, failing) == [True] * 3


def test_grow_without_newcomers_goes_on(transport):
    def body(comm):
        assert comm.grow() is None and comm.pending == 0
        return comm.all_reduce(np.ones(10))[0]

    assert run_ranks(3, body, transport=transport) == [3, 3, 3]


def test_join_running_without_a_job_is_an_error_in_time():
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = "127.0.0.1:%d" % free.getsockname()[1]
    with pytest.raises(ropewalk.TimeoutError, match="no member of a job"):
        ropewalk.Communicator(coordinator=address, join_running=True, join_timeout=0.1)
