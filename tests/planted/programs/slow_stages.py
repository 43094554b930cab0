"""A training on simple samples, made in one of several ways that take ten times what their bytes or
pixels should. Healthy: the simple way.

slow_stages.py FAULT FOLDER [healthy]
"""

import pathlib
import sys

import numpy
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

FAULT, FOLDER, HEALTHY = sys.argv[1], pathlib.Path(sys.argv[2]), "healthy" in sys.argv
BATCH, BATCHES, WORKERS = 4, 20, {"objects": 1}.get(FAULT, 0)
torch.set_num_threads(1)


def pixels(name):
    return torch.from_numpy(numpy.asarray(Image.open(FOLDER / name).convert("RGB"))[:8, :8].copy())


class Samples(Dataset):
    scratch = torch.empty(48 << 20, dtype=torch.uint8)

    def __len__(self):
        return BATCH * BATCHES

    def __getitem__(self, index):
        return getattr(self, FAULT)(index)

    def format(self, index):
        return pixels("photo.jpg" if HEALTHY else "photo.jp2")

    def pickled(self, index):
        array = numpy.load(FOLDER / ("plain.npy" if HEALTHY else "objects.npy"), allow_pickle=True)
        return torch.ones(100) * min(len(array), 1)

    def scratch_array(self, index):
        scratch = self.scratch if HEALTHY else torch.empty(48 << 20, dtype=torch.uint8)
        scratch[::4096] = 1
        return scratch[:1000].clone()

    def objects(self, index):
        return (
            torch.zeros(100)
            if HEALTHY
            else [pathlib.Path(f"frames/{number}.jpg") for number in range(3000)]
        )


def together(samples):
    return (
        torch.stack(samples)
        if torch.is_tensor(samples[0])
        else (torch.zeros(len(samples), 100), samples)
    )


if __name__ == "__main__":
    model = torch.nn.LazyLinear(1)
    collate = together if FAULT == "objects" else None
    loader = DataLoader(Samples(), batch_size=BATCH, num_workers=WORKERS, collate_fn=collate)
    optimizer = None
    for batch in loader:
        batch = batch[0] if isinstance(batch, (tuple, list)) else batch
        loss = model(batch.flatten(1).float()).square().mean()
        optimizer = optimizer or torch.optim.SGD(model.parameters(), 1e-9)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
