"""Arithmetic in Python for every sample, in the training's own process and with one thread: it
needs one CPU and nothing else.
"""

import sys

import torch
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class Sums(Dataset):
    def __len__(self):
        return 8 * int(sys.argv[1])

    def __getitem__(self, index):
        return torch.tensor([float(sum(i * i for i in range(10_000)) % (index + 1))])


if __name__ == "__main__":
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    for batch in DataLoader(Sums(), batch_size=8):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
