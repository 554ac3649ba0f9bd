"""CPU tensors of PyTorch, through DLPack; only where it is installed."""

import numpy as np
import pytest

import ropewalk
from ranks import run_ranks

torch = pytest.importorskip("torch")


def tensors(comm):
    for dtype in [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64]:
        x = torch.full((4, 5), comm.rank + 1, dtype=dtype)
        assert comm.all_reduce(x) is x
        assert (x == sum(range(1, comm.size + 1))).all()
        out = torch.empty((comm.size, 4, 5), dtype=dtype)
        assert comm.all_gather(x, out) is out and (out == x).all()
    parameter = torch.nn.Parameter(torch.ones(3))
    comm.broadcast(parameter)  # as torch.distributed does: in place, unseen by autograd
    half = torch.from_dlpack(comm.allocate((3, 2), torch.bfloat16))
    assert half.dtype == torch.bfloat16 and half.shape == (3, 2)
    half += 1
    comm.all_reduce(half)
    assert (half == comm.size).all()


def refusals(comm):
    x = torch.ones(4, 5)
    for wrong, text in [(x.T, "not contiguous"), (x > 0, "dtype bool"),
                        (torch.ones(3, device="meta"), "x is a torch.Tensor.*meta"),
                        (torch.ones(3).to_sparse(), "x is a torch.Tensor")]:
        with pytest.raises(ropewalk.InvalidArgumentError, match=text):
            comm.all_reduce(wrong)
    with pytest.raises(ropewalk.InvalidArgumentError, match="give out"):
        comm.all_gather(x)


def policy(comm):
    sgd = ropewalk.AllReduceSGD(comm)
    model = torch.nn.Linear(3, 2).to(torch.bfloat16)
    data = [p.data for p in model.parameters()]
    for _ in range(comm.rank):
        assert sgd.sum_gradients([torch.ones_like(p) for p in data]) >= 1
    sgd.synchronize_parameters(data)
    return [p.float().numpy() for p in data]


@pytest.mark.parametrize("body", [tensors, refusals])
def test_tensors(body, transport):
    run_ranks(3, body, transport=transport)


def test_bfloat16_models_end_alike():
    results = run_ranks(3, policy)
    for result in results[1:]:
        for got, wanted in zip(result, results[0]):
            np.testing.assert_array_equal(got, wanted)
