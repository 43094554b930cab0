"""Exceptions in workers: of Python, with a constructor of its own, KeyError, in collate, and one
that cannot be pickled.
"""

import torch
from tiny import Numbers, digest, loader, network, train


class Own(Exception):
    def __init__(self, a, b):
        super().__init__(f"{a} and {b}")


def fail(kind):
    if kind == 0:
        raise ValueError("a value")
    if kind == 1:
        raise Own(1, 2)
    if kind == 2:
        raise KeyError("a key\nof two lines")
    raise RuntimeError(open(__file__))


class Failing(Numbers):
    def __getitem__(self, index):
        if index == 5:
            fail(self.kind)
        return super().__getitem__(index)


for kind in range(4):
    data = Failing(8)
    data.kind = kind
    try:
        for _ in torch.utils.data.DataLoader(data, batch_size=2, num_workers=2):
            print("batch")
    except Exception as error:
        print(type(error).__name__, str(error).splitlines()[0], str(error).splitlines()[-1][:30])
try:
    list(torch.utils.data.DataLoader([torch.ones(2), torch.ones(3)], batch_size=2, num_workers=1))
except RuntimeError as error:
    print(str(error).splitlines()[-1])
digest(train(network(), loader(num_workers=1)))
