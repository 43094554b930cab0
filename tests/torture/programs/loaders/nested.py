"""A loader inside a dataset of another loader, in its worker, and one over the batches of another."""

import torch
from tiny import Numbers, digest, loader, network, sgd, step


class Outer(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return torch.cat(list(loader(batch_size=8, shuffle=False)))[index::8]


class Chained(torch.utils.data.IterableDataset):
    def __iter__(self):
        yield from torch.utils.data.DataLoader(Numbers(), batch_size=8)


net = network()
optimizer = sgd(net)
for x in torch.utils.data.DataLoader(Outer(), num_workers=1):
    step(net, optimizer, x[0])
for x in torch.utils.data.DataLoader(Chained(), batch_size=None):
    step(net, optimizer, x)
digest(net)
