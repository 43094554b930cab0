"""A training in phases, each fed by a loader of another kind, as the command line names them."""

import argparse

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, get_worker_info

SAMPLES, FEATURES = 48, 16


def sample(index):
    x = torch.arange(FEATURES, dtype=torch.float32).mul(index + 1).sin()
    return x, x.sum(0, keepdim=True)


class Numbers(Dataset):
    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return sample(index)


class Stream(IterableDataset):
    """Samples, or whole batches, shared out among the workers."""

    def __init__(self, batch=None):
        self.batch = batch

    def __iter__(self):
        worker = get_worker_info()
        start, step = (worker.id, worker.num_workers) if worker else (0, 1)
        if self.batch is None:
            yield from map(sample, range(start, SAMPLES, step))
            return
        for first in range(start * self.batch, SAMPLES, step * self.batch):
            x, y = zip(*map(sample, range(first, first + self.batch)))
            yield torch.stack(x), torch.stack(y)


class ByLength(Sampler):
    """A batch sampler: batches of 4 and 12 in turn."""

    def __iter__(self):
        for first in range(0, SAMPLES, 16):
            yield list(range(first, first + 4))
            yield list(range(first + 4, first + 16))

    def __len__(self):
        return SAMPLES // 8


def stateful():
    from torchdata.stateful_dataloader import StatefulDataLoader

    return StatefulDataLoader(Numbers(), batch_size=8, shuffle=True, num_workers=2)


LOADERS = {
    "iterable": lambda: DataLoader(Stream(), batch_size=8, num_workers=2),
    "no_batching": lambda: DataLoader(Stream(8), batch_size=None, num_workers=2),
    "batch_sampler": lambda: DataLoader(Numbers(), batch_sampler=ByLength(), num_workers=2),
    "out_of_order": lambda: DataLoader(Numbers(), batch_size=8, num_workers=2, in_order=False),
    "persistent": lambda: DataLoader(Numbers(), batch_size=8, shuffle=True, num_workers=2, persistent_workers=True),
    "spawned": lambda: DataLoader(Numbers(), batch_size=8, num_workers=2, multiprocessing_context="spawn"),
    "stateful": stateful,
    "none": lambda: DataLoader(Numbers(), batch_size=8),
}


def train(loader, model, criterion, optimizer):
    for epoch in range(2):
        samples = 0
        for x, y in loader:
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()
            samples += len(x)
        print("epoch", epoch, "samples", samples)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("loader", choices=LOADERS, nargs="+")
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(FEATURES, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for name in parser.parse_args().loader:
        train(LOADERS[name](), model, torch.nn.MSELoss(), optimizer)
