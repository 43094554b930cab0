"""Dataset, collate and init function are lambdas and local classes, which only fork can take; spawn
refuses in the same words.
"""

import torch
from tiny import digest, network, sgd, step


def build():
    class Local(torch.utils.data.Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, index):
            return torch.ones(4) * index

    return Local()


def batches(method):
    return torch.utils.data.DataLoader(
        build(),
        batch_size=2,
        num_workers=1,
        collate_fn=lambda xs: torch.stack(xs) / 8,
        multiprocessing_context=method,
    )


if __name__ == "__main__":
    net = network()
    optimizer = sgd(net)
    for x in batches("fork"):
        print(step(net, optimizer, x))
    try:
        next(iter(batches("spawn")))
    except Exception as error:
        print(type(error).__name__, error)
    digest(net)
