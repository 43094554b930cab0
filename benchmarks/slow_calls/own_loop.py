"""A loop of the program's own, of no known kind, two functions deep. Twin: one call of NumPy."""

import numpy as np
import torch
from training import TWIN, WIDTH, loader, train


def smooth(values, width):
    if TWIN:
        return np.convolve(values, np.ones(width) / width, "same")
    result = np.zeros_like(values)
    for at in range(len(values)):
        for near in range(max(0, at - width // 2), min(len(values), at + width // 2 + 1)):
            result[at] += values[near] / width  # SLOW
    return result


def prepare(index):
    return smooth(np.sin(np.arange(WIDTH) * index), 16)


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 2000

    def __getitem__(self, index):
        return torch.from_numpy(prepare(index)), index % 10


train(loader(Rows()))
