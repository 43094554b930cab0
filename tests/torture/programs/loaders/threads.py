"""Samples are made by a pool of threads, in the training process and in a worker."""

from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool

import torch
from tiny import Numbers, digest, network, sgd, step


class Pooled(Numbers):
    def __getitems__(self, indices):
        with ThreadPool(3) as pool:
            return pool.map(self.__getitem__, indices)


net = network()
optimizer = sgd(net)
for workers in (0, 1):
    for x in torch.utils.data.DataLoader(Pooled(), batch_size=4, num_workers=workers):
        step(net, optimizer, x)
with ThreadPoolExecutor(2) as pool:
    for x in pool.map(lambda i: torch.stack([Numbers()[i], Numbers()[i + 1]]), range(8)):
        step(net, optimizer, x)
digest(net)
