"""Trains one model after the other as ``hydra -m`` does;

``--crash`` adds one that raises, ``--ranks`` trains each by all ranks.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler
from trainings import data, job, net, update


def ranks(lr, samples, epochs):
    model = nn.parallel.DistributedDataParallel(net())
    whole, optimizer = data(samples), torch.optim.SGD(model.parameters(), lr=lr)
    sampler = DistributedSampler(whole)
    loader = DataLoader(whole, batch_size=8, sampler=sampler)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            update(model, optimizer, x, y)


def crash(lr, samples):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for index, (x, y) in enumerate(DataLoader(data(samples), batch_size=8)):
        if index == 4:
            raise RuntimeError("diverged")
        update(model, optimizer, x, y)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--crash", action="store_true")
    parser.add_argument("--ranks", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    if args.ranks:
        torch.distributed.init_process_group("gloo")
    train = ranks if args.ranks else job
    print(train(0.1, 80, 2), train(0.2, 160, 3))
    if args.crash:
        crash(0.3, 80)
