"""Photographs from a slow place, decoded in the training's own process. Healthy: by two workers."""

import pathlib
import sys
import time

import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

HEALTHY = "healthy" in sys.argv
torch.set_num_threads(1)


class Photos(Dataset):
    files = sorted(pathlib.Path(sys.argv[1]).glob("*.jpg"))
    transform = transforms.Compose([transforms.CenterCrop(64), transforms.PILToTensor()])

    def __len__(self):
        return 8 * 50

    def __getitem__(self, index):
        time.sleep(0.003)  # the place is that far away
        return self.transform(Image.open(self.files[index % len(self.files)]).convert("RGB"))


if __name__ == "__main__":
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3, stride=4), torch.nn.Flatten(), torch.nn.LazyLinear(1))
    loader = DataLoader(Photos(), batch_size=8, num_workers=2 if HEALTHY else 0)
    model(torch.zeros(1, 3, 64, 64))
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    for batch in loader:
        optimizer.zero_grad()
        model(batch.float() / 255).square().mean().backward()
        optimizer.step()
        time.sleep(0.02)  # an accelerator computes
