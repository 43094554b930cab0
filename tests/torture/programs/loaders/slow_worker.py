"""A worker takes longer than the loader's timeout."""

import time

import torch
from tiny import Numbers, digest, loader, network, train


class Slow(Numbers):
    def __getitem__(self, index):
        time.sleep(1.5 if index == 4 else 0)
        return super().__getitem__(index)


try:
    for _ in torch.utils.data.DataLoader(Slow(), batch_size=4, num_workers=1, timeout=1):
        print("batch")
except RuntimeError as error:
    print(error)
digest(train(network(), loader()))
