"""The policies, with ranks that take different numbers of steps."""

import threading
import time

import numpy as np
import pytest

import ropewalk
from ranks import Job, run_ranks


def parameters(rank, dtype="float32"):
    noise = np.random.default_rng(rank)
    return [noise.standard_normal(shape).astype(dtype) for shape in [(4, 3), (5,), (), (2000,)]]


def uneven_sgd(comm, dtype):
    sgd, model = ropewalk.AllReduceSGD(comm), parameters(comm.rank, dtype)
    contributors = []
    for _ in range(comm.rank + 1):
        gradients = [np.full(p.shape, comm.rank + 1, dtype) for p in model]
        contributors.append(sgd.sum_and_normalize_gradients(gradients))
        for p, gradient in zip(model, gradients):
            p -= gradient
    sgd.synchronize_parameters(model)
    return contributors, [p.tobytes() for p in model]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_sgd_ends_with_the_same_bits(dtype, size, transport):
    results = run_ranks(size, uneven_sgd, dtype, transport=transport)
    assert all(bits == results[0][1] for _, bits in results)
    # In round i, ranks i, i + 1, ... still step.
    for rank, (contributors, _) in enumerate(results):
        assert contributors == [size - i for i in range(rank + 1)]


def summed(comm):
    gradients = parameters(0)
    assert ropewalk.AllReduceSGD(comm).sum_gradients(g for g in gradients) == comm.size
    return gradients


def test_sgd_sums():
    for gradients in run_ranks(3, summed):
        for got, one in zip(gradients, parameters(0)):
            np.testing.assert_allclose(got, 3 * one, rtol=1e-6)


def elastic(comm, dtype):
    ea, model = ropewalk.AllReduceEA(comm, tau=2, alpha=0.2), parameters(0, dtype)
    for _ in range(2 * comm.rank + 1):
        for p in model:
            p += p.dtype.type(comm.rank)
        ea.average_parameters(model)
    ea.synchronize_center(model)
    apart = [p.copy() for p in model]
    ea.synchronize_parameters(model)
    return apart, model


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_ea_synchronizes(dtype, transport):
    results = run_ranks(3, elastic, dtype, transport=transport)
    for _, model in results:
        for got, wanted in zip(model, results[0][0]):
            np.testing.assert_array_equal(got, wanted)
    assert (results[2][0][0] > results[0][0][0]).all()


def orphaned_policy(comm):
    sgd = ropewalk.AllReduceSGD(ropewalk.Communicator(rank=0, size=1))
    gradients = [np.ones(3, "float32")]
    assert sgd.sum_gradients(gradients) == 1


def test_a_policy_keeps_its_communicator():
    run_ranks(1, orphaned_policy)


def refusals(comm):
    refused = ropewalk.InvalidArgumentError
    for tau, alpha in [(0, 0.5), (1, 0.0), (1, 1.0), (1, float("nan"))]:
        with pytest.raises(refused, match="tau|alpha"):
            ropewalk.AllReduceEA(comm, tau, alpha)
    sgd, x = ropewalk.AllReduceSGD(comm), np.ones(4, "float32")
    for wrong, text in [([], "empty"), ([x, x[::2]], r"gradients\[1\] is not contiguous"),
                        ([x, x.astype("float64")], r"gradients\[1\] has dtype float64"),
                        ([x.astype("int32")], "dtype int32"),
                        ([[1.0]], r"gradients\[0\] is a list")]:
        with pytest.raises(refused, match=text):
            sgd.sum_gradients(wrong)
    sgd.sum_gradients([x])
    with pytest.raises(refused, match="5 elements, but 4"):
        sgd.sum_gradients([x, x[:1]])
    with pytest.raises(refused, match="unlike in earlier calls"):
        sgd.sum_gradients([x.astype("float64")])
    with pytest.raises(TypeError):
        sgd.sum_gradients(3)


def test_wrong_lists_are_refused():
    run_ranks(1, refusals)


def asynchronous(comm, dtype):
    model = parameters(0, dtype)
    start = [p.astype("float64") for p in model]
    pushed = [np.zeros(p.shape) for p in model]  # what this rank has moved the center by
    with ropewalk.AsyncEA(comm, tau=2, alpha=0.25, dtype=dtype) as ea:
        ea.synchronize_parameters(model)
        for step in range(2 * comm.rank + 3):  # uneven
            for p in model:
                p += p.dtype.type(comm.rank + 1)
            before = [p.astype("float64") for p in model]
            assert ea.average_parameters(model) == (step % 2 == 1)
            for sum_, b, p in zip(pushed, before, model):
                sum_ += b - p
        center = [np.empty_like(p) for p in model]
        ea.center(center)
        apart = [p.copy() for p in model]
        ea.synchronize_parameters(model)
    for p in pushed:
        comm.all_reduce(p)
    for c, s, sum_, p in zip(center, start, pushed, model):
        np.testing.assert_array_equal(c, p)
        # Nothing lost, nothing twice; halves round at every exchange.
        np.testing.assert_allclose(c.astype("float64"), s + sum_,
                                   rtol=2e-2 if dtype == "float16" else 1e-4)
    return any((a != p).any() for a, p in zip(apart, model)), [p.tobytes() for p in model]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_async_ea_loses_nothing(dtype, size, transport):
    results = run_ranks(size, asynchronous, dtype, transport=transport)
    assert all(moved and bits == results[0][1] for moved, bits in results)


def straggling(comm, folder):
    """Rank 0 takes its second step only when all steps of the others are done."""
    model = [np.zeros(1000, "float32")]
    with ropewalk.AsyncEA(comm, tau=1, alpha=0.1) as ea:
        ea.synchronize_center(model)
        comm.barrier()
        for step in range(2 if comm.rank == 0 else 200):
            deadline = time.monotonic() + 20
            while comm.rank == 0 and step == 1 and len(list(folder.iterdir())) < comm.size - 1:
                assert time.monotonic() < deadline, "the others wait for rank 0"
                time.sleep(0.01)
            model[0] += 1
            ea.average_parameters(model)
        (folder / str(comm.rank)).touch()
        ea.synchronize_parameters(model)
    return model[0].tobytes()


def test_async_ea_waits_for_no_straggler(tmp_path, transport):
    results = run_ranks(3, straggling, tmp_path, transport=transport)
    assert len(set(results)) == 1


def served(comm):
    model = [np.zeros(100, "float64"), np.zeros((), "float64")]
    with ropewalk.AsyncEA(comm, 1, 0.5, dtype="float64", servers=1) as ea:
        if comm.rank == 0:
            ea.serve()
            return None
        ea.synchronize_parameters(model)
        for _ in range(10):
            for p in model:
                p += 1
            ea.average_parameters(model)
        ea.synchronize_parameters(model)
    return [p.tobytes() for p in model]


def test_async_ea_on_servers(transport):
    results = run_ranks(3, served, transport=transport)
    assert results[0] is None and results[1] == results[2]


def async_without_with(comm):
    ea = ropewalk.AsyncEA(comm, 1, 0.5)
    model = [np.full(10, comm.rank, "float32")]
    ea.synchronize_parameters(model)
    ea.average_parameters(model)
    comm.close()  # closes the policy first
    with pytest.raises(ropewalk.InvalidArgumentError, match="closed"):
        ea.average_parameters(model)
    return model[0].tolist()


def test_async_ea_ends_with_its_communicator():
    assert run_ranks(2, async_without_with) == [[0] * 10] * 2


def async_refusals(comm):
    refused = ropewalk.InvalidArgumentError
    for tau, alpha, more, text in [(0, 0.5, {}, "tau"), (1, 1.5, {}, "alpha"),
                                   (1, 0.5, {"servers": 1}, "servers"),
                                   (1, 0.5, {"dtype": "int32"}, "dtype is int32")]:
        with pytest.raises(refused, match=text):
            ropewalk.AsyncEA(comm, tau, alpha, **more)
    x = np.ones(4, "float32")
    with ropewalk.AsyncEA(comm, 1, 0.5) as ea:
        with pytest.raises(refused, match="no center yet"):
            ea.average_parameters([x])
        with pytest.raises(refused, match="float64, not float32"):
            ea.synchronize_center([x.astype("float64")])
        with pytest.raises(refused, match="a worker"):
            ea.serve()
        ea.synchronize_center([x])
        with pytest.raises(refused, match="5 elements"):
            ea.average_parameters([np.ones(5, "float32")])


def test_async_ea_refuses():
    run_ranks(1, async_refusals)


def async_accident(comm):
    model = [np.ones(10, "float32")]
    with ropewalk.AsyncEA(comm, 1, 0.5) as ea:
        if comm.rank == 1:
            ea.synchronize_parameters(model)
            raise KeyError("an accident")
        # Perhaps as soon as in the call that rank 1 has just returned from.
        with pytest.raises((ropewalk.AbortedError, ropewalk.PeerLostError), match="rank 1"):
            ea.synchronize_parameters(model)
            while True:
                ea.average_parameters(model)
        return True


def async_watchdog(comm):
    model = [np.ones(10, "float32")]
    ea = ropewalk.AsyncEA(comm, 1, 0.5)
    comm.barrier()
    if comm.rank == 0:
        threading.Timer(0.3, comm.abort, ["it takes too long"]).start()
        with pytest.raises(ropewalk.AbortedError, match="it takes too long"):
            ea.synchronize_parameters(model)      # waits for rank 1
    else:
        with pytest.raises(ropewalk.AbortedError, match="it takes too long"):
            comm.barrier()
        time.sleep(1)                             # its own end would end rank 0's wait, too
    with pytest.raises(ropewalk.AbortedError, match="it takes too long"):
        ea.synchronize_parameters(model)
    return True


def test_abort_from_a_thread_ends_a_wait_of_async_ea(transport):
    assert run_ranks(2, async_watchdog, transport=transport) == [True] * 2


def test_an_exception_ends_async_ea_everywhere(transport):
    job = Job(3, async_accident, transport=transport)
    try:
        outcomes = job.outcomes()
    finally:
        job.end()
    assert "an accident" in outcomes[1][1]
    assert outcomes[0] == outcomes[2] == ("returned", True), outcomes
