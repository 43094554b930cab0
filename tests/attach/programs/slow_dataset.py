"""A training whose data set has one slow function, with timers of its own: it prints which part of
the time it waited for data, which part of their time workers made batches, which part of that the
slow function took, and its losses.

    slow_dataset.py WORKERS START_METHOD SECONDS STEPS
"""

import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info


class Slow(Dataset):
    """Its batches carry how long the worker has made batches, and since when."""

    def __init__(self):
        self.began = None
        self.busy = self.slow = 0.0

    def __len__(self):
        return 1 << 28

    def __getitems__(self, indices):
        begin = time.perf_counter()
        self.began = self.began or begin
        samples = [self[index] for index in indices]
        self.busy += time.perf_counter() - begin
        return samples

    def __getitem__(self, index):
        slow = self.tokenize(index)
        x = torch.full((32,), float(index % 7 + slow % 3))
        for _ in range(3):
            x = x.sort().values
        return x

    def collate(self, samples):
        begin = time.perf_counter()
        batch = torch.stack(samples)
        end = time.perf_counter()
        self.busy += end - begin
        worker = get_worker_info()
        return batch, worker.id if worker else 0, self.busy, self.slow, end - self.began

    def tokenize(self, index):
        begin, total = time.perf_counter(), 0
        for step in range(40_000):
            total += step * index % 3
        self.slow += time.perf_counter() - begin
        return total


def main():
    workers, method, seconds, steps = (int(sys.argv[1]), sys.argv[2], *map(float, sys.argv[3:5]))
    torch.manual_seed(0)
    torch.set_num_threads(1)
    context = method if workers else None
    data = Slow()
    loader = DataLoader(
        data,
        batch_size=4,
        num_workers=workers,
        multiprocessing_context=context,
        collate_fn=data.collate,
    )
    model = torch.nn.Sequential(torch.nn.Linear(32, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    waited, losses, seen = 0.0, [], {}
    batches = iter(loader)
    first = next(batches)
    print("begun", flush=True)
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds or len(losses) < steps:
        asked = time.perf_counter()
        x, worker, busy, slow, whole = next(batches)
        waited += time.perf_counter() - asked
        seen[worker] = busy, slow, whole
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    whole = time.perf_counter() - begin
    busy, slow, made = map(sum, zip(*seen.values()))
    print(waited / whole, busy / made, slow / busy, *losses[: int(steps)], flush=True)
    del first


if __name__ == "__main__":
    main()
