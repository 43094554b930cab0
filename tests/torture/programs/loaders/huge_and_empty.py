"""Batches of 40 MB from a worker, samples of no bytes, a dataset of length zero, batches larger
than the dataset.
"""

import torch
from tiny import Numbers, digest, loader, network, sgd, step


class Huge(torch.utils.data.Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        return torch.full((1_250_000, 4), float(index))


net = network()
optimizer = sgd(net)
for x in torch.utils.data.DataLoader(Huge(), batch_size=2, num_workers=2):
    print(step(net, optimizer, x[:, :2].reshape(-1, 4)))
for x in torch.utils.data.DataLoader([torch.empty(0)] * 4, batch_size=2):
    print(x.shape)
for _ in torch.utils.data.DataLoader(Numbers(0), batch_size=2, num_workers=1):
    print("never")
for x in loader(batch_size=100):
    print(step(net, optimizer, x))
for _ in loader(batch_size=100, drop_last=True):
    print("never")
digest(net)
