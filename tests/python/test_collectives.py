"""Every collective against numpy: dtypes, transports, 1 to 4 ranks, with and without `out`."""

import numpy as np
import pytest

import ropewalk
from ropewalk import _core
from ranks import run_ranks

DTYPES = [name for name in _core.data_types() if hasattr(np, name)]
SHAPE = (5, 7)


def data(rank, dtype="float32", shape=SHAPE):
    """Small whole numbers, exact in every dtype, different on every rank."""
    return np.asarray(np.arange(np.prod(shape)).reshape(shape) % 5 + rank + 1, dtype)


def everyone(comm, dtype="float32", shape=SHAPE):
    return [data(rank, dtype, shape) for rank in range(comm.size)]


def expect(got, wanted):
    np.testing.assert_array_equal(got, wanted, strict=True)


def all_reduce(comm):
    reductions = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}
    for dtype in DTYPES:
        for op, function in reductions.items():
            x = data(comm.rank, dtype)
            wanted = function.reduce(everyone(comm, dtype)).astype(dtype)
            assert comm.all_reduce(x, op) is x
            expect(x, wanted)
    x, out = data(comm.rank), np.zeros(SHAPE, "float32")
    assert comm.all_reduce(x, ropewalk.Op.AVG, out) is out
    expect(x, data(comm.rank))
    np.testing.assert_allclose(out, np.mean(everyone(comm), axis=0), rtol=1e-6)
    scaled = comm.all_reduce(x.copy(), ropewalk.scaled_sum(comm.rank + 0.5))
    expect(scaled, sum(part * np.float32(rank + 0.5) for rank, part in enumerate(everyone(comm))))


def gathers(comm):
    for dtype in DTYPES:
        expect(comm.all_gather(data(comm.rank, dtype)), np.stack(everyone(comm, dtype)))
    x, root = data(comm.rank), comm.size - 1
    out = np.zeros((comm.size * 5, 7), "float32")
    assert comm.all_gather(x, out) is out
    expect(out, np.concatenate(everyone(comm)))
    gathered = comm.gather(x, root)
    if comm.rank == root:
        expect(gathered, np.stack(everyone(comm)))
    else:
        assert gathered is None
    counts = list(range(comm.size))  # one of them 0
    flat = np.concatenate([data(rank, shape=(count,)) for rank, count in enumerate(counts)])
    part = data(comm.rank, shape=(comm.rank,))
    expect(comm.all_gather(part, counts=counts), flat)
    gathered = comm.gather(part, root, counts=counts)
    assert gathered is None or (gathered == flat).all()


def scatters(comm):
    root, shape = comm.size - 1, (comm.size, *SHAPE)
    for dtype in DTYPES:
        total = sum(everyone(comm, dtype, shape)).astype(dtype)
        expect(comm.reduce_scatter(data(comm.rank, dtype, shape)), total[comm.rank])
    whole = data(root, shape=shape)
    out = np.zeros(SHAPE, "float32")
    assert comm.scatter(whole if comm.rank == root else None, root, out) is out
    expect(out, whole[comm.rank])
    if comm.rank == root:
        expect(comm.scatter(whole, root), whole[root])
    else:
        comm.scatter(None, root, out)
    counts = [rank + 1 for rank in range(comm.size)]
    begin = sum(counts[:comm.rank])
    mine = slice(begin, begin + counts[comm.rank])
    flat = data(0, shape=(sum(counts),))
    expect(comm.reduce_scatter(flat, counts=counts), flat[mine] * comm.size)
    out = np.zeros(counts[comm.rank], "float32")
    comm.scatter(flat if comm.rank == root else None, root, out, counts=counts)
    expect(out, flat[mine])


def rooted(comm):
    for root in range(comm.size):
        x = data(comm.rank)
        assert comm.broadcast(x, root) is x
        expect(x, data(root))
        x = data(comm.rank)
        total = comm.reduce(x, "sum", root)
        expect(x, data(comm.rank))
        if comm.rank == root:
            expect(total, sum(everyone(comm)))
        else:
            assert total is None
    constant = data(0)
    constant.flags.writeable = comm.rank != 0  # the root's is only read
    expect(comm.broadcast(constant, 0), data(0))


def all_to_all(comm):
    shape = (comm.size, *SHAPE)
    wanted = np.stack([part[comm.rank] for part in everyone(comm, shape=shape)])
    expect(comm.all_to_all(data(comm.rank, shape=shape)), wanted)
    # Rank a sends a + b elements, each 10 a + b, to rank b.
    counts = [comm.rank + other for other in range(comm.size)]
    sent = np.repeat([10 * comm.rank + other for other in range(comm.size)], counts)
    received = np.repeat([10 * other + comm.rank for other in range(comm.size)], counts)
    expect(comm.all_to_all(sent, counts=counts, recv_counts=counts), received)


def point_to_point(comm):
    if comm.size == 1:
        return
    after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    got = np.zeros(SHAPE, "float32")
    sending = comm.send(data(comm.rank), after, async_op=True)
    assert comm.recv(got, before) is got
    assert sending.wait() is None
    expect(got, data(before))


def odd_arrays(comm):
    for shape in [(), (0,), (3, 0), (1,), (1 << 20,)]:
        total = np.asarray(sum(everyone(comm, shape=shape)), "float32")
        expect(comm.all_reduce(data(comm.rank, shape=shape)), total)
    import array
    plain = array.array("d", [comm.rank, 1.0])
    comm.all_reduce(plain, "max")
    assert plain.tolist() == [comm.size - 1, 1.0]
    bits = bytearray([comm.rank])
    comm.all_reduce(memoryview(bits))
    assert bits[0] == sum(range(comm.size))
    for algorithm in ["ring", ropewalk.Algorithm.RECURSIVE_DOUBLING, "direct"]:
        expect(comm.all_reduce(data(comm.rank), algorithm=algorithm), sum(everyone(comm)))


@pytest.mark.parametrize("body", [all_reduce, gathers, scatters, rooted, all_to_all, point_to_point,
                                  odd_arrays])
def test_agrees_with_numpy(body, size, transport):
    run_ranks(size, body, transport=transport)


def properties(comm):
    comm.barrier()
    assert comm.transport == ("self" if comm.size == 1 else "shm")
    assert (comm.local_rank, comm.local_size) == (comm.rank, comm.size)
    return comm.rank, comm.size, repr(comm)


def test_a_rank_knows_its_place():
    told = run_ranks(2, properties)
    assert told == [(rank, 2, f"<ropewalk.Communicator: rank {rank} of 2, shm>") for rank in (0, 1)]
