"""gc.collect in every step. Twin: never."""

import gc

import torch
from training import TWIN, WIDTH, loader, train


def tidy(step, loss, model):
    if not TWIN:
        gc.collect()  # SLOW


rows = torch.utils.data.TensorDataset(torch.randn(4000, WIDTH), torch.randint(0, 10, (4000,)))
train(loader(rows), tidy)
