#!/usr/bin/env python3
"""Handwritten digits by DistributedDataParallel, over the backend "ropewalk" or another.

torchrun --nproc-per-node 4 examples/torch/ddp.py
ropewalk run -n 4 -- python examples/torch/ddp.py
"""
import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ropewalk.torch
from digits import Digits, accuracy, net


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="ropewalk", help="or gloo, to compare")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--save", metavar="FILE", help="write the model to this file at the end")
    options = parser.parse_args()

    torch.set_num_threads(1)  # the ranks share the CPUs
    ropewalk.torch.init_process_group(options.backend)  # with torchrun: or dist.init_process_group
    rank, size = dist.get_rank(), dist.get_world_size()
    digits, model = Digits(), DistributedDataParallel(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    for epoch in range(1, options.epochs + 1):
        mean_loss = torch.zeros(1)
        batches = digits.batches(rank, size, 64 // size, epoch)
        for step, (images, labels) in enumerate(batches, 1):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()  # DDP averages the gradients
            optimizer.step()
            mean_loss += (loss.detach() - mean_loss) / step
        dist.all_reduce(mean_loss, dist.ReduceOp.AVG)
        if rank == 0:
            print(f"epoch {epoch}: loss {mean_loss.item():.3f}", flush=True)
    if rank == 0:
        print(f"held-out accuracy {accuracy(model.module, digits):.1f} %", flush=True)
        if options.save:
            torch.save(model.module.state_dict(), options.save)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
