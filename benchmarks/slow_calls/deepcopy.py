"""Each sample is a deep copy of lists and dicts. Twin: a tensor."""

import copy

import torch
from training import TWIN, WIDTH, loader, train


class Rows(torch.utils.data.Dataset):
    def __init__(self):
        self.rows = [
            {"values": [float(row % 7)] * WIDTH, "boxes": [{"at": [row, row, row, row]}] * 40}
            for row in range(1000)
        ]
        self.tensors = torch.tensor([row["values"] for row in self.rows])

    def __len__(self):
        return 1000

    def __getitem__(self, index):
        if TWIN:
            return self.tensors[index], index % 10
        row = copy.deepcopy(self.rows[index])  # SLOW
        return torch.tensor(row["values"]), index % 10


train(loader(Rows()))
