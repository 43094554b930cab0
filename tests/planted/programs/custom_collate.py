"""A collate of its own stacks photographs in ordinary memory. Healthy: default_collate."""

import pathlib
import sys

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

HEALTHY = "healthy" in sys.argv
torch.set_num_threads(1)


class Photos(Dataset):
    files = sorted(pathlib.Path(sys.argv[1]).glob("*.jpg"))
    decoded = [np.array(Image.open(file)) for file in files]

    def __len__(self):
        return 64 * 30

    def __getitem__(self, index):
        return self.decoded[index % len(self.files)]


def stack(samples):
    return torch.from_numpy(np.stack(samples))


if __name__ == "__main__":
    model = torch.nn.Linear(3, 1)
    loader = DataLoader(Photos(), batch_size=64, num_workers=2, collate_fn=None if HEALTHY else stack)
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    for batch in loader:
        optimizer.zero_grad()
        model(batch[:, ::64, ::64].float() / 255).square().mean().backward()
        optimizer.step()
