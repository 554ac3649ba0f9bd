#!/usr/bin/env python3
"""Handwritten digits by elastic averaging: ranks train apart, and are pulled together now and then.

ropewalk run -n 4 -- python examples/torch/elastic_averaging.py
torchrun --nproc-per-node 4 examples/torch/elastic_averaging.py
"""
import argparse

import torch
from torch import nn

import ropewalk
from digits import Digits, accuracy, net


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--tau", type=int, default=5, help="average at every TAU-th step")
    parser.add_argument("--alpha", type=float, default=0.2, help="moving rate, between 0 and 1")
    options = parser.parse_args()

    torch.set_num_threads(1)  # the ranks share the CPUs
    digits, model = Digits(), net()
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.05, momentum=0.9)
    with ropewalk.Communicator() as comm:  # rank and size come from the launcher
        ea = ropewalk.AllReduceEA(comm, options.tau, options.alpha)
        ea.synchronize_parameters(parameters)  # all start from those of rank 0
        for epoch in range(1, options.epochs + 1):
            for images, labels in digits.batches(comm.rank, comm.size, 16, epoch):
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(images), labels)
                loss.backward()
                optimizer.step()
                ea.average_parameters(parameters)
            ea.synchronize_center(parameters)
            if comm.rank == 0:
                print(f"epoch {epoch}: held-out accuracy of rank 0 {accuracy(model, digits):.1f} %",
                      flush=True)
        ea.synchronize_parameters(parameters)
        if comm.rank == 0:
            print(f"held-out accuracy {accuracy(model, digits):.1f} %", flush=True)


if __name__ == "__main__":
    main()
