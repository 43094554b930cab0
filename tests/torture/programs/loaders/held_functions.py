"""The dataset and its collate hold functions that a profiler might replace; workers are started by
every method.
"""

import pickle
import sys

import torch
from tiny import digest, loader, network, sgd, step

HELD = [
    torch.Tensor.to,
    torch.Tensor.cuda,
    torch.save,
    torch.nn.Module.__call__,
    torch.autograd.backward,
    open,
]


class Holds(torch.utils.data.Dataset):
    def __init__(self):
        self.held = list(HELD)

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return self.held[0](torch.ones(4) * index, torch.float32)


if __name__ == "__main__":
    for function in HELD:
        print(
            function.__name__,
            function.__module__ if hasattr(function, "__module__") else "",
            pickle.dumps(function),
        )
    net = network()
    optimizer = sgd(net)
    for x in torch.utils.data.DataLoader(
        Holds(), batch_size=2, num_workers=1, multiprocessing_context=sys.argv[1]
    ):
        print(step(net, optimizer, x))
    digest(net)
    assert loader
