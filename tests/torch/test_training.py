"""What people train with, over the backend, against one process that does it all."""

import copy
import os

import pytest
import torch
import torch._dynamo  # noqa: F401 - DDP's first step loads it, which is better done before forking
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.join import Join
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                               parallelize_module)
from torch.nn.parallel import DistributedDataParallel

from groups import is_registered, run_group

SIZE, STEPS, BATCH = 3, 5, 6
transports = pytest.mark.parametrize("transport", ["shm", "tcp"])


def net():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(10, 33), nn.Tanh(), nn.Linear(33, 17), nn.Tanh(),
                         nn.Linear(17, 4))


def batch_of(step, rank):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return (torch.randn(BATCH, 10, generator=generator),
            torch.randint(0, 4, (BATCH,), generator=generator))


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.3, momentum=0.9)


def alone(optimizer_of=sgd, model=None, ranks_at=lambda step: range(SIZE)):
    """One process that sees every rank's batches."""
    model = model or net()
    optimizer = optimizer_of(model.parameters())
    for step in range(STEPS):
        batches = [batch_of(step, rank) for rank in ranks_at(step)]
        optimizer.zero_grad()
        inputs, labels = (torch.cat(parts) for parts in zip(*batches))
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    return model


def train(model, optimizer, steps=STEPS):
    for step in range(steps):
        inputs, labels = batch_of(step, dist.get_rank())
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()


def compare(model, wanted):
    for got, one in zip(model.state_dict().values(), wanted.state_dict().values()):
        torch.testing.assert_close(got, one, rtol=1e-4, atol=1e-5)
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, [p.tolist() for p in model.parameters()])
    assert all(other == everyone[0] for other in everyone)  # the same bits


def ddp(options):
    model = net()
    if dist.get_rank() != 0:
        nn.init.zeros_(model[0].weight)  # DDP puts rank 0's on every rank
    model = DistributedDataParallel(model, **options)
    train(model, sgd(model.parameters()))
    compare(model.module, alone())


@transports
@pytest.mark.parametrize("options", [{}, {"bucket_cap_mb": 0.001, "gradient_as_bucket_view": True},
                                     {"static_graph": True}, {"find_unused_parameters": True}])
def test_ddp(options, transport):
    run_group(SIZE, ddp, options, transport=transport)


def hooked(name):
    model = DistributedDataParallel(net(), bucket_cap_mb=0.001)
    model.register_comm_hook(None, getattr(default_hooks, name))
    train(model, sgd(model.parameters()))
    for got, one in zip(model.module.parameters(), alone().parameters()):
        torch.testing.assert_close(got, one, rtol=2e-1, atol=3e-2)  # gradients travel as halves


@pytest.mark.parametrize("name", ["allreduce_hook", "fp16_compress_hook", "bf16_compress_hook"])
def test_ddp_hooks(name):
    run_group(SIZE, hooked, name)


def buckets():
    """Whether all of DDP's buckets are registered memory, which is a mapped file."""
    found = []

    def look(state, bucket):
        found.append(is_registered(bucket.buffer()))
        return default_hooks.allreduce_hook(state, bucket)

    model = DistributedDataParallel(net(), bucket_cap_mb=0.001)
    model.register_comm_hook(None, look)
    train(model, sgd(model.parameters()))
    compare(model.module, alone())
    assert len(found) > STEPS and len(set(found)) == 1
    dist.destroy_process_group()  # before the model goes, and with it the memory
    return found[0]


@transports
@pytest.mark.parametrize("disabled, registered", [(None, torch.cuda.device_count() == 0), ("0", True),
                                                  ("1", False)])
def test_ddp_buckets_are_registered_once_unless_disabled(disabled, registered, transport, monkeypatch):
    monkeypatch.delenv("DDP_DISABLE_COMM_MEM", raising=False)
    if disabled:
        monkeypatch.setenv("DDP_DISABLE_COMM_MEM", disabled)
    assert run_group(SIZE, buckets, transport=transport) == [registered] * SIZE


def accumulated():
    model = DistributedDataParallel(net())
    optimizer = sgd(model.parameters())
    with model.no_sync():
        inputs, labels = batch_of(0, dist.get_rank())
        nn.functional.cross_entropy(model(inputs), labels).backward()
    inputs, labels = batch_of(1, dist.get_rank())
    nn.functional.cross_entropy(model(inputs), labels).backward()
    optimizer.step()
    wanted = net()
    optimizer = sgd(wanted.parameters())
    for step in range(2):
        inputs, labels = (torch.cat(parts)
                          for parts in zip(*[batch_of(step, rank) for rank in range(SIZE)]))
        nn.functional.cross_entropy(wanted(inputs), labels).backward()
    optimizer.step()
    compare(model.module, wanted)


def test_accumulated_gradients():
    run_group(SIZE, accumulated)


def fsdp(halves):
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16) if halves else MixedPrecisionPolicy()
    mesh = dist.init_device_mesh("cpu", (SIZE,))
    model = net()
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    train(model, sgd(model.parameters()))
    wanted = alone()
    for got, one in zip(model.parameters(), wanted.parameters()):
        assert got.to_local().numel() < one.numel()
        rounding = dict(rtol=2e-1, atol=5e-2) if halves else dict(rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(got.full_tensor(), one, **rounding)


@transports
def test_fsdp(transport):
    run_group(SIZE, fsdp, False, transport=transport)


def test_fsdp_in_halves():
    run_group(SIZE, fsdp, True)


def uneven():
    """Rank r has STEPS - r batches; a rank without one adds nothing."""
    rank = dist.get_rank()
    model = DistributedDataParallel(net())
    optimizer = sgd(model.parameters())
    with Join([model], divide_by_initial_world_size=False):
        train(model, optimizer, STEPS - rank)
    compare(model.module, alone(ranks_at=lambda step: [r for r in range(SIZE) if step < STEPS - r]))


@transports
def test_join(transport):
    run_group(SIZE, uneven, transport=transport)


def zero():
    model = DistributedDataParallel(net())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
    train(model, optimizer)
    compare(model.module, alone(lambda parameters: torch.optim.Adam(parameters, lr=0.01)))
    optimizer.consolidate_state_dict(to=1)
    if dist.get_rank() == 1:
        assert len(optimizer.state_dict()["state"]) == len(list(model.parameters()))


@transports
def test_zero_redundancy_optimizer(transport):
    run_group(SIZE, zero, transport=transport)


def checkpoint(folder):
    def sharded():
        model = fully_shard(net(), mesh=dist.init_device_mesh("cpu", (SIZE,)))
        return model, sgd(model.parameters())

    model, optimizer = sharded()
    train(model, optimizer)
    parts = get_state_dict(model, optimizer)
    dcp.save({"model": parts[0], "optimizer": parts[1]}, checkpoint_id=folder)
    fresh, fresh_optimizer = sharded()
    train(fresh, fresh_optimizer, 1)
    parts = get_state_dict(fresh, fresh_optimizer)
    state = {"model": parts[0], "optimizer": parts[1]}
    dcp.load(state, checkpoint_id=folder)
    set_state_dict(fresh, fresh_optimizer, model_state_dict=state["model"],
                   optim_state_dict=state["optimizer"])
    for saved, loaded in zip(model.parameters(), fresh.parameters()):
        assert torch.equal(saved.to_local(), loaded.to_local())
    train(model, optimizer, 2)
    train(fresh, fresh_optimizer, 2)  # the momentum came along
    for one, other in zip(model.parameters(), fresh.parameters()):
        assert torch.equal(one.to_local(), other.to_local())


@transports
def test_distributed_checkpoint(transport, tmp_path):
    run_group(SIZE, checkpoint, str(tmp_path), transport=transport)
    assert len([name for name in os.listdir(tmp_path) if name.endswith(".distcp")]) == SIZE


def embedding():
    """Sparse gradients."""
    torch.manual_seed(2)
    wanted = nn.Sequential(nn.EmbeddingBag(20, 6, sparse=True), nn.Linear(6, 4))
    model = DistributedDataParallel(copy.deepcopy(wanted))
    places = [torch.tensor([[r, r + 1, 5], [2 * r, 7, 7]]) for r in range(SIZE)]
    labels = [torch.tensor([r, 3]) for r in range(SIZE)]
    for module, inputs, targets in [
            (model, places[dist.get_rank()], labels[dist.get_rank()]),
            (wanted, torch.cat(places), torch.cat(labels))]:
        nn.functional.cross_entropy(module(inputs), targets).backward()
        torch.optim.SGD(module.parameters(), lr=0.5).step()
    assert model.module[0].weight.grad.is_sparse
    compare(model.module, wanted)


@transports
def test_sparse_gradients(transport):
    run_group(SIZE, embedding, transport=transport)


def local_sgd():
    model = net()
    optimizer = sgd(model.parameters())
    averager = PeriodicModelAverager(period=3, warmup_steps=0)
    for step in range(4):
        inputs, labels = batch_of(step, dist.get_rank())
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        averager.average_parameters(model.parameters())
    # At steps 0 and 3: alike at the end, though trained apart.
    everyone = [None] * SIZE
    dist.all_gather_object(everyone, [p.tolist() for p in model.parameters()])
    assert everyone[1] == everyone[0] == everyone[2]


def test_model_averaging():
    run_group(SIZE, local_sgd)


def tensor_parallel():
    torch.manual_seed(3)
    whole = nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 6))
    inputs = torch.randn(4, 6)
    model = parallelize_module(copy.deepcopy(whole), dist.init_device_mesh("cpu", (SIZE,)),
                               {"0": ColwiseParallel(), "2": RowwiseParallel()})
    torch.testing.assert_close(model(inputs), whole(inputs))
    model(inputs).square().sum().backward()
    whole(inputs).square().sum().backward()
    for got, one in zip(model.parameters(), whole.parameters()):
        torch.testing.assert_close(got.grad.full_tensor(), one.grad, rtol=1e-4, atol=1e-5)


@transports
def test_tensor_parallel(transport):
    run_group(SIZE, tensor_parallel, transport=transport)
