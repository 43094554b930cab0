"""Lists of tokens are joined by sum() for each sample. Twin: by itertools.chain."""

import itertools

import torch
from training import TWIN, WIDTH, loader, train

WORDS = [[number % 50, number % 7, number % 3] for number in range(1200)]


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 1500

    def __getitem__(self, index):
        words = [WORDS[(index + at) % 1200] for at in range(600)]
        if TWIN:
            tokens = list(itertools.chain.from_iterable(words))
        else:
            tokens = sum(words, [])  # SLOW
        return torch.tensor(tokens[:WIDTH], dtype=torch.float32), index % 10


train(loader(Rows()))
