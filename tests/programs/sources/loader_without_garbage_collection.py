"""Many turn the garbage collector off; what a loader had open must go with it all the same."""

import gc
import weakref

import torch
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    gc.disable()
    loader = DataLoader(TensorDataset(torch.randn(16, 4)), batch_size=4, num_workers=1)
    iterator = iter(loader)
    names = {"loader": loader, "iterator": iterator, "queue": iterator._worker_result_queue}
    lives = {name: weakref.ref(thing) for name, thing in names.items()}
    for _ in iterator:
        pass
    del loader, iterator, names
    print(", ".join(f"{name} {life() is not None}" for name, life in lives.items()))
