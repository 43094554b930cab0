"""A worker's exception ends the training: the traceback is the one that torch prints."""

import torch
from tiny import Numbers


class Failing(Numbers):
    def __getitem__(self, index):
        raise ValueError(f"sample {index}")


for x in torch.utils.data.DataLoader(Failing(), batch_size=2, num_workers=1):
    print(x)
