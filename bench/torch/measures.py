"""What one rank measures: torch.distributed's all_reduce, training with DDP, and many groups."""
import os
import resource
import statistics
import time


def all_reduce(rank, sizes):
    """Bytes -> microseconds: as `ropewalk bench` times, on ordinary tensors.

    Every rank rewrites its tensor, barrier, clock, all_reduce, clock; the slowest rank counts; the
    median over iterations.
    """
    import torch
    import torch.distributed as dist

    medians = {}
    for size in sizes:
        tensor = torch.ones(max(1, size // 4))
        iterations = max(10, min(2000, (256 << 20) // max(size, 1 << 15)))
        warm_up = iterations // 5
        times = torch.zeros(warm_up + iterations, dtype=torch.float64)
        for iteration in range(len(times)):
            tensor.fill_(1.0)
            dist.barrier()
            begin = time.perf_counter()
            dist.all_reduce(tensor)
            times[iteration] = time.perf_counter() - begin
        if not bool((tensor == dist.get_world_size()).all()):
            raise RuntimeError(f"wrong sums over {dist.get_backend()}")
        slowest = times[warm_up:].clone()
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        medians[size] = slowest.median().item() * 1e6
    return medians


def _model():
    """About 25 million parameters and little arithmetic: communication decides."""
    import torch

    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(1024, 2048), torch.nn.ReLU(),
                               *(layer for _ in range(5) for layer in
                                 (torch.nn.Linear(2048, 2048), torch.nn.ReLU())),
                               torch.nn.Linear(2048, 1024))


def _no_sum(state, bucket):
    """A communication hook of DDP that leaves the gradients as they are."""
    import torch

    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def train(rank, batch, steps=12, trace=None):
    """Samples a second of one rank; {"trained", "without sums"}: the latter is what DDP itself
    leaves room for. Writes a trace where asked."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    x, y = torch.randn(batch, 1024), torch.randn(batch, 1024)

    def stepper(hook=None):
        model = DistributedDataParallel(_model())
        if hook:
            model.register_comm_hook(None, hook)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

        def step():
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
        return step

    def rate(step):
        times = []
        for _ in range(steps):
            begin = time.perf_counter()
            step()
            times.append(time.perf_counter() - begin)
        return batch / statistics.median(times[steps // 4:])

    step = stepper()
    rates = {"trained": rate(step)}
    if trace and rank == 0:
        with torch.profiler.profile() as profile:
            step()
        profile.export_chrome_trace(trace)
    elif trace:
        step()
    del step
    rates["without sums"] = rate(stepper(_no_sum))
    return rates


def _held():
    """Descriptors, and KiB of anonymous memory that are resident."""
    with open("/proc/self/status", encoding="utf-8") as file:
        kib = next(line.split()[1] for line in file if line.startswith("RssAnon:"))
    return len(os.listdir("/proc/self/fd")), int(kib)


def groups(rank, count, descriptors_max=None):
    """`count` times new_group of all ranks, one after the other, each with its first all_reduce: {"ms", "descriptors",
    "KiB"} of each, on the rank where that is most. Under the hard limit of descriptors where none is given."""
    import torch
    import torch.distributed as dist

    limit = descriptors_max or resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    made = []

    def make(more):
        for _ in range(more):
            made.append(dist.new_group())
            tensor = torch.full((2,), rank + 1.0)
            dist.all_reduce(tensor, group=made[-1])
            if not bool((tensor == sum(range(dist.get_world_size() + 1))).all()):
                raise RuntimeError(f"wrong sums over {dist.get_backend()}")

    make(2)  # all connections stand
    dist.barrier()
    descriptors, kib = _held()
    begin = time.perf_counter()
    make(count)
    seconds = time.perf_counter() - begin
    descriptors_after, kib_after = _held()
    most = torch.tensor([1e3 * seconds, descriptors_after - descriptors, kib_after - kib], dtype=torch.float64)
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    return dict(zip(("ms", "descriptors", "KiB"), (most / count).tolist()))
