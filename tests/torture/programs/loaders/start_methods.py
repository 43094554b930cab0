"""Workers are started by spawn and forkserver, set as the default, with persistent workers and a
dataset from __main__.
"""

import sys

import torch
import torch.multiprocessing as mp
from tiny import digest, network, sgd, step


class Here(torch.utils.data.Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        assert __name__ == "__mp_main__", __name__
        return torch.ones(4) * index / 12


if __name__ == "__main__":
    mp.set_start_method(sys.argv[1])
    net = network()
    optimizer = sgd(net)
    batches = torch.utils.data.DataLoader(
        Here(), batch_size=4, num_workers=2, persistent_workers=True
    )
    for _ in range(2):
        for x in batches:
            print(step(net, optimizer, x))
    digest(net)
