#!/usr/bin/env python3
"""Handwritten digits by asynchronous elastic averaging: no rank waits for a slow one.

Each rank trains a model of its own, and every TAU steps exchanges it with a center that lies in
parts on all ranks. The center is what is learned: it is saved, loaded and judged.

ropewalk run -n 4 -- python examples/torch/async_training.py --save model.pt
ropewalk run -n 4 --hosts alpha,beta,gamma,delta -- python examples/torch/async_training.py
torchrun --nproc-per-node 4 examples/torch/async_training.py
"""
import argparse
import time

import numpy as np
import torch
from torch import nn

import ropewalk
from digits import Digits, accuracy, net


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--tau", type=int, default=5, help="exchange at every TAU-th step")
    parser.add_argument("--alpha", type=float, default=0.2, help="moving rate, between 0 and 1")
    parser.add_argument("--slow", type=float, default=0, metavar="SECONDS",
                        help="the last rank sleeps so long at every step")
    parser.add_argument("--save", metavar="FILE", help="write the model to this file at the end")
    parser.add_argument("--load", metavar="FILE", help="start from the model in this file")
    return parser.parse_args()


def train(comm: ropewalk.Communicator, ea: ropewalk.AsyncEA, digits: Digits, model: nn.Module,
          options: argparse.Namespace) -> None:
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    losses = np.zeros(options.epochs)  # this rank's mean, by epoch
    began = time.monotonic()
    for epoch in range(options.epochs):
        for step, (images, labels) in enumerate(digits.batches(comm.rank, comm.size, 16, epoch), 1):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            ea.average_parameters(parameters)  # waits for no other rank's training
            losses[epoch] += (loss.item() - losses[epoch]) / step
            if comm.rank == comm.size - 1:
                time.sleep(options.slow)
    print(f"rank {comm.rank} trained for {time.monotonic() - began:.2f} s", flush=True)
    ea.synchronize_parameters(parameters)  # here they meet: the center, the same bits everywhere
    comm.all_reduce(losses, "avg")
    for epoch, loss in enumerate(losses, 1):
        if comm.rank == 0:
            print(f"epoch {epoch}: loss {loss:.3f}", flush=True)


def main() -> None:
    options = arguments()
    torch.set_num_threads(1)  # the ranks share the CPUs
    digits, model = Digits(), net()
    with ropewalk.Communicator() as comm:  # rank and size come from the launcher
        if options.load and comm.rank == 0:
            model.load_state_dict(torch.load(options.load, weights_only=True))
        for parameter in model.parameters():
            comm.broadcast(parameter)
        with ropewalk.AsyncEA(comm, options.tau, options.alpha) as ea:
            ea.synchronize_center(list(model.parameters()))
            train(comm, ea, digits, model, options)
        if comm.rank == 0:
            print(f"held-out accuracy {accuracy(model, digits):.1f} %", flush=True)
            if options.save:
                torch.save(model.state_dict(), options.save)
        comm.barrier()  # where the others learn whether it was saved


if __name__ == "__main__":
    main()
