"""A process is started for each sample. Twin: none."""

import subprocess

import torch
from training import TWIN, WIDTH, loader, train


def value(index):
    if TWIN:
        return float(index)
    done = subprocess.run(["echo", str(index)], capture_output=True, check=True)  # SLOW
    return float(done.stdout)


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, index):
        return torch.full((WIDTH,), value(index)), index % 10


train(loader(Rows()))
