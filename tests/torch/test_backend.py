"""Every call of torch.distributed over the backend, against what the ranks brought."""

import operator
from functools import reduce

import pytest
import torch
import torch.distributed as dist

from groups import outcomes_of, run_group

REAL = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.uint16,
            torch.uint32, torch.uint64]
COMPLEX = [torch.complex64, torch.complex128]
OTHER = [torch.bool, torch.float8_e4m3fn, torch.complex32]
transports = pytest.mark.parametrize("transport", ["shm", "tcp"])
sizes = pytest.mark.parametrize("size", [1, 2, 3, 4])


def brought(rank, dtype, count=7):
    """What a rank brings: small whole numbers, so that every sum is exact."""
    numbers = (torch.arange(count) * 3 + 5 * rank) % 11
    if dtype == torch.bool:
        return numbers % 2 == 0
    if dtype.is_complex:
        return torch.complex(numbers.double(), numbers.double() - 4).to(dtype)
    return numbers.to(torch.float32).to(dtype) if dtype.is_floating_point else numbers.to(dtype)


def everyone(dtype, count=7):
    return [brought(rank, dtype, count) for rank in range(dist.get_world_size())]


def same(got, wanted):
    """Bit for bit: uint16 and the like have no == of their own."""
    assert got.dtype == wanted.dtype and got.shape == wanted.shape
    view = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}.get(got.element_size())
    if view is None:
        got, wanted, view = torch.view_as_real(got), torch.view_as_real(wanted), torch.int64
    assert torch.equal(got.contiguous().view(view), wanted.contiguous().view(view)), (got, wanted)


def combined(tensors, how):
    return reduce(how, [t.to(torch.int64) if not t.dtype.is_floating_point
                        and not t.dtype.is_complex and t.dtype != torch.bool else t.double()
                        if t.dtype.is_floating_point else t for t in tensors])


def reductions():
    ops = {dist.ReduceOp.SUM: operator.add, dist.ReduceOp.PRODUCT: operator.mul,
           dist.ReduceOp.MIN: torch.minimum, dist.ReduceOp.MAX: torch.maximum}
    for dtype in REAL + INTEGERS:
        for op, how in ops.items():
            small = 2 if op == dist.ReduceOp.PRODUCT else 7
            wanted = combined(everyone(dtype, small), how).to(dtype)
            x = brought(dist.get_rank(), dtype, small)
            dist.all_reduce(x, op)
            same(x, wanted)
    for dtype in INTEGERS + [torch.bool]:
        for op, how in {dist.ReduceOp.BAND: operator.and_, dist.ReduceOp.BOR: operator.or_,
                        dist.ReduceOp.BXOR: operator.xor}.items():
            x = brought(dist.get_rank(), dtype)
            dist.all_reduce(x, op)
            wanted = combined(everyone(dtype), how)
            same(x, wanted.to(dtype))
    for op, how in {dist.ReduceOp.SUM: operator.or_, dist.ReduceOp.PRODUCT: operator.and_,
                    dist.ReduceOp.MIN: operator.and_, dist.ReduceOp.MAX: operator.or_}.items():
        x = brought(dist.get_rank(), torch.bool)
        dist.all_reduce(x, op)
        same(x, combined(everyone(torch.bool), how))
    for dtype in COMPLEX:
        x = brought(dist.get_rank(), dtype)
        dist.all_reduce(x)
        same(x, combined(everyone(dtype), operator.add))


def averages():
    size = dist.get_world_size()
    for dtype in REAL + COMPLEX:
        x = brought(dist.get_rank(), dtype)
        dist.all_reduce(x, dist.ReduceOp.AVG)
        torch.testing.assert_close(x, (combined(everyone(dtype), operator.add) / size).to(dtype))
    for dtype in REAL:
        x = brought(dist.get_rank(), dtype)
        dist.all_reduce(x, dist._make_nccl_premul_sum(0.5 + dist.get_rank()))
        wanted = sum((0.5 + rank) * t.double() for rank, t in enumerate(everyone(dtype)))
        torch.testing.assert_close(x, wanted.to(dtype))
    x = brought(dist.get_rank(), torch.float32)
    dist.all_reduce(x, dist._make_nccl_premul_sum(torch.tensor(0.25)))
    torch.testing.assert_close(x, sum(everyone(torch.float32)) / 4)
    x = brought(dist.get_rank(), torch.int64)
    dist.all_reduce(x, dist.ReduceOp.AVG)
    same(x, torch.div(sum(everyone(torch.int64)), size, rounding_mode="trunc"))


def roots():
    rank, size = dist.get_rank(), dist.get_world_size()
    for root in range(size):
        for dtype in REAL + INTEGERS + COMPLEX + OTHER:
            if dtype.itemsize == 4 and dtype.is_complex:
                continue
            x = brought(rank, dtype)
            dist.broadcast(x, root)
            same(x, brought(root, dtype))
        x = brought(rank, torch.float32)
        dist.reduce(x, root)
        if rank == root:
            same(x, sum(everyone(torch.float32)))
        for dtype in [torch.float32, torch.bool, torch.complex128]:
            x = brought(rank, dtype)
            parts = [torch.empty_like(x) for _ in range(size)] if rank == root else None
            dist.gather(x, parts, root)
            for part, wanted in zip(parts or [], everyone(dtype)):
                same(part, wanted)
            parts = [t + 1 if dtype != torch.bool else t for t in everyone(dtype)]
            dist.scatter(x, parts if rank == root else None, root)
            same(x, parts[rank])


def gathers():
    rank, size = dist.get_rank(), dist.get_world_size()
    for dtype in REAL + INTEGERS + COMPLEX + [torch.bool, torch.float8_e4m3fn]:
        x = brought(rank, dtype)
        parts = [torch.empty_like(x) for _ in range(size)]
        dist.all_gather(parts, x)
        for part, wanted in zip(parts, everyone(dtype)):
            same(part, wanted)
        for shape in [(size, 7), (size * 7,)]:
            whole = torch.empty(shape, dtype=dtype)
            dist.all_gather_into_tensor(whole, x)
            same(whole.flatten(), torch.cat(everyone(dtype)))
    uneven = [torch.empty(r + 1, 2) for r in range(size)]
    dist.all_gather(uneven, torch.full((rank + 1, 2), float(rank)))
    for r, part in enumerate(uneven):
        assert part.shape == (r + 1, 2) and (part == r).all()
    lists = [[torch.empty(2), torch.empty(3)] for _ in range(size)]
    dist.all_gather_coalesced(lists, [torch.full((2,), 1.0 * rank),
                                       torch.full((3,), -1.0 * rank)])
    for r, (two, three) in enumerate(lists):
        assert (two == r).all() and (three == -r).all()


def scatters():
    rank, size = dist.get_rank(), dist.get_world_size()
    for dtype in REAL + [torch.int64, torch.uint8] + COMPLEX:
        sums = combined(everyone(dtype, 3 * size), operator.add).to(dtype)
        x, part = brought(rank, dtype, 3 * size), torch.empty(3, dtype=dtype)
        dist.reduce_scatter_tensor(part, x)
        same(part, sums[3 * rank:3 * rank + 3])
        dist.reduce_scatter(part, list(x.split(3)))  # one behind the other: in place
        same(part, sums[3 * rank:3 * rank + 3])
        dist.reduce_scatter(part, [t.clone() for t in x.split(3)])
        same(part, sums[3 * rank:3 * rank + 3])
        same(x, brought(rank, dtype, 3 * size))
    part = torch.empty(rank + 1)
    dist.reduce_scatter(part, [torch.full((r + 1,), 1.0 + r) for r in range(size)])
    assert (part == size * (1 + rank)).all()
    part = torch.empty(2)
    dist.reduce_scatter_tensor(part, torch.full((2 * size,), 1.0 + rank), dist.ReduceOp.AVG)
    torch.testing.assert_close(part, torch.full((2,), (size + 1) / 2))


def exchanges():
    rank, size = dist.get_rank(), dist.get_world_size()
    for dtype in [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64]:
        x, out = brought(rank, dtype, 2 * size), torch.empty(2 * size, dtype=dtype)
        dist.all_to_all_single(out, x)
        same(out, torch.cat([t[2 * rank:2 * rank + 2] for t in everyone(dtype, 2 * size)]))
        give = [torch.full((r + rank, 3), rank).to(dtype) for r in range(size)]
        take = [torch.empty((r + rank, 3), dtype=dtype) for r in range(size)]
        dist.all_to_all(take, give)
        for r, part in enumerate(take):
            same(part, torch.full((r + rank, 3), r).to(dtype))
    sends, takes = [rank] * size, list(range(size))  # rank r sends r rows to each
    out = torch.empty(sum(takes), 4)
    dist.all_to_all_single(out, torch.full((rank * size, 4), float(rank)), takes, sends)
    assert out[:, 0].tolist() == [r for r in range(size) for _ in range(r)]


def empties_and_scalars():
    size = dist.get_world_size()
    x = torch.empty(0)
    dist.all_reduce(x)
    dist.broadcast(x, 0)
    dist.all_gather([torch.empty(0) for _ in range(size)], x)
    scalar = torch.tensor(2.0)
    dist.all_reduce(scalar)
    assert scalar.shape == () and scalar == 2 * size
    large = torch.full((3, 1 << 20), 1.0)
    dist.all_reduce(large)
    assert (large == size).all()
    dist.barrier()


BODIES = [reductions, averages, roots, gathers, scatters, exchanges, empties_and_scalars]


@sizes
@pytest.mark.parametrize("body", BODIES)
def test_over_shared_memory(body, size):
    run_group(size, body)


@pytest.mark.parametrize("body", BODIES)
def test_over_tcp(body):
    run_group(3, body, transport="tcp")


def coalesced():
    rank, size = dist.get_rank(), dist.get_world_size()
    sums = [torch.full((n,), 1.0 + rank) for n in (3, 1, 5000, 4)]
    dist.all_reduce_coalesced(sums[:3])
    with dist._coalescing_manager(async_ops=True) as manager:
        dist.all_reduce(sums[3])
    manager.wait()
    assert all((x == size * (size + 1) // 2).all() for x in sums)
    wholes = [torch.empty(size * n) for n in (2, 6)]
    with dist._coalescing_manager():
        for n, whole in zip((2, 6), wholes):
            dist.all_gather_into_tensor(whole, torch.full((n,), float(rank)))
    for n, whole in zip((2, 6), wholes):
        assert (whole.view(size, n) == torch.arange(size).view(size, 1)).all()
    parts = [torch.empty(n) for n in (2, 6)]
    with dist._coalescing_manager():
        for part in parts:
            dist.reduce_scatter_tensor(part, torch.ones(size * part.numel()))
    assert all((part == size).all() for part in parts)
    with dist._coalescing_manager():
        pass
    with dist._coalescing_manager(device=torch.device("cpu")):
        for n in range(3):
            dist.broadcast(parts[0][n:n + 1] if n < 2 else parts[1], n % size)
    assert (parts[1] == size).all()


def refused_batch():
    """What torch collects must not go on being collected."""
    rank, size = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    with pytest.raises(ValueError, match="not contiguous"):
        dist.batch_isend_irecv([dist.P2POp(dist.isend, torch.ones(3, 4).t(), right),
                                dist.P2POp(dist.irecv, torch.empty(4, 3), left)])
    x = torch.full((3,), float(rank))
    dist.barrier()
    dist.broadcast(x, 1)
    assert (x == 1).all()


def messages():
    rank, size = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    x = torch.empty(4)
    for work in dist.batch_isend_irecv([
            dist.P2POp(dist.isend, torch.full((4,), float(rank)), right),
            dist.P2POp(dist.irecv, x, left)]):
        work.wait()
    assert (x == left).all()
    given = [torch.full((3,), 10 * rank + tag, dtype=torch.int32) for tag in range(3)]
    sent = [dist.isend(t, right, tag=tag) for tag, t in enumerate(given)]
    for tag in range(3):
        y = torch.empty(3, dtype=torch.int32)
        dist.recv(y, left, tag=tag)
        assert (y == 10 * left + tag).all()
    for work in sent:
        work.wait()
    for dtype in [torch.bool, torch.complex64, torch.float8_e4m3fn]:
        y = torch.empty(7, dtype=dtype)
        work = dist.isend(brought(rank, dtype), right)
        dist.recv(y, left)
        same(y, brought(left, dtype))
        work.wait()


def other_tags():
    """Messages of a pair come in the order in which they were sent; a tag is only compared."""
    if dist.get_rank() == 1:
        dist.isend(torch.ones(1), 0, tag=1).wait()
    else:
        dist.recv(torch.ones(1), 1, tag=2)


def test_a_tag_is_compared():
    how, what = outcomes_of(2, other_tags)[0]
    assert how == "raised" and "tag 2" in what and "tag 1" in what, what


def any_source():
    rank, size = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        seen = set()
        for _ in range(size - 1):
            x = torch.empty(2)
            sender = dist.recv(x)
            assert (x == sender).all()
            seen.add(sender)
        assert seen == set(range(1, size))
    else:
        dist.send(torch.full((2,), float(rank)), 0)
    x = torch.empty(1)
    if rank == 0:
        work = dist.irecv(x)  # nobody sends yet
        assert not work.is_completed()
        dist.barrier()
        work.wait()
        assert work._source_rank() == size - 1 and x == 5
    else:
        dist.barrier()
        if rank == size - 1:
            dist.send(torch.full((1,), 5.0), 0)


def objects():
    rank, size = dist.get_rank(), dist.get_world_size()
    everything = [None] * size
    dist.all_gather_object(everything, {"rank": rank, "text": "x" * rank * 1000})
    assert [e["rank"] for e in everything] == list(range(size))
    given = [("root", 1.5), None] if rank == 1 else [None, None]
    dist.broadcast_object_list(given, src=1)
    assert given == [("root", 1.5), None]
    got = [None] * size if rank == 0 else None
    dist.gather_object(rank, got, dst=0)
    assert got is None or got == list(range(size))
    mine = [None]
    dist.scatter_object_list(mine, [f"for {r}" for r in range(size)] if rank == 0 else None, src=0)
    assert mine == [f"for {rank}"]
    if rank == 0:
        dist.send_object_list(["sent", 3], dst=1)
    elif rank == 1:
        got = [None, None]
        dist.recv_object_list(got, src=0)
        assert got == ["sent", 3]


def sparse():
    rank, size = dist.get_rank(), dist.get_world_size()
    places = torch.tensor([[0, rank + 1], [1, 2]])
    x = torch.sparse_coo_tensor(places, torch.tensor([1.0, 2.0 + rank]), (size + 1, 3))
    wanted = torch.zeros(size + 1, 3)
    wanted[0, 1] = size
    for r in range(size):
        wanted[r + 1, 2] = 2.0 + r
    dist.all_reduce(x)
    assert torch.equal(x.to_dense(), wanted)
    nothing = torch.sparse_coo_tensor((4, 2)) if rank else torch.eye(4)[:, :2].to_sparse()
    dist.all_reduce(nothing)
    assert torch.equal(nothing.to_dense(), torch.eye(4)[:, :2])


@transports
@pytest.mark.parametrize("body", [coalesced, refused_batch, messages, any_source, objects, sparse])
def test_calls(body, transport):
    run_group(3, body, transport=transport)
