"""Trainings that do not run in the main thread of the process that is looked at: started.py KIND.

Each prints ``begun`` after its first step.
"""

import multiprocessing
import sys
import threading
import time

import torch
from torchdata.stateful_dataloader import StatefulDataLoader


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 1 << 20

    def __getitem__(self, index):
        return torch.full((256,), float(sum(range(60_000)) % 7))


def train(workers=0):
    torch.set_num_threads(1)
    model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(40)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loader = StatefulDataLoader(Data(), batch_size=8, num_workers=workers)
    for step, batch in enumerate(loader):
        model(batch).sum().backward()
        optimizer.step()
        if step == 0:
            print("begun", flush=True)


if __name__ == "__main__":
    kind = sys.argv[1]
    if kind == "process":
        context = multiprocessing.get_context("fork")
        context.Process(target=time.sleep, args=(1000,), daemon=True).start()
        training = context.Process(target=train)
        training.start()
        training.join()
    elif kind == "thread":
        training = threading.Thread(target=train)
        training.start()
        training.join()
    else:
        train(workers=2)
