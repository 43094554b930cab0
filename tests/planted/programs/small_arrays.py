"""16 arrays of 160 kB per batch from small files, with torch's default number of threads.

Healthy: with one.
"""

import pathlib
import sys

import numpy
import torch
from torch.utils.data import DataLoader, Dataset

HEALTHY = "healthy" in sys.argv


class Arrays(Dataset):
    files = sorted(pathlib.Path(sys.argv[1]).glob("*.npy"))

    def __len__(self):
        return 16 * 12

    def __getitem__(self, index):
        return torch.from_numpy(numpy.load(self.files[index % len(self.files)]))


if __name__ == "__main__":
    torch.set_num_threads(1 if HEALTHY else 2)
    model = torch.nn.Linear(200, 10)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(int(sys.argv[2])):
        for batch in DataLoader(Arrays(), batch_size=16):
            optimizer.zero_grad()
            model(batch).mean().backward()
            optimizer.step()
