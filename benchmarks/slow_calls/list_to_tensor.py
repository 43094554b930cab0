"""collate_fn makes a tensor of nested lists. Twin: samples are tensors."""

import torch
from training import TWIN, WIDTH, loader, train


class Rows(torch.utils.data.Dataset):
    def __init__(self):
        self.rows = [[[float(row % 7)] * WIDTH for _ in range(40)] for row in range(500)]
        if TWIN:
            self.rows = list(map(torch.tensor, self.rows))

    def __len__(self):
        return 500

    def __getitem__(self, index):
        return self.rows[index], index % 10


def joined(samples):
    rows, labels = zip(*samples)
    batch = torch.stack(rows) if TWIN else torch.tensor(rows)  # SLOW
    return batch.mean(1), torch.tensor(labels)


train(loader(Rows(), collate_fn=joined))
