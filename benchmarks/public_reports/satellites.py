"""Fields are told apart in images from space; workers are started by spawn, in each epoch.

https://github.com/allenai/rslearn_projects/pull/17
"""

import sys
import time

import scipy.stats  # noqa: F401 - stands for the many modules of such a program
import torch
import torchvision  # noqa: F401
from torch import nn
from torch.utils.data import DataLoader, Dataset

TWIN = "--twin" in sys.argv


class Fields(Dataset):
    def __init__(self):
        self.images = torch.randn(3200, 3, 8, 8)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index] * 0.5 + 0.5, index % 5


def main():
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 256), nn.ReLU(), nn.Linear(256, 5))
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    loader = DataLoader(
        Fields(),
        batch_size=8,
        shuffle=True,
        num_workers=1,
        multiprocessing_context="spawn",
        persistent_workers=TWIN,
    )
    end, steps = time.time() + 40, 0
    while time.time() < end:
        for images, kinds in loader:
            loss = nn.functional.cross_entropy(model(images), kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
            if time.time() > end:
                break
    print("loss", loss.item(), "steps", steps)


if __name__ == "__main__":
    main()
