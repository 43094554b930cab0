"""Photographs of 960 x 800 that are used nearly whole. Healthy: decoded once, kept in memory as numbers."""

import pathlib
import sys

import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

HEALTHY = "healthy" in sys.argv
torch.set_num_threads(1)


class Photos(Dataset):
    files = sorted(pathlib.Path(sys.argv[1]).glob("*.jpg"))
    transform = transforms.Compose([transforms.CenterCrop(512), transforms.PILToTensor()])

    def __init__(self):
        self.decoded = [self.decode(file) for file in self.files if HEALTHY]

    def __len__(self):
        return 4 * 50

    def __getitem__(self, index):
        return self.decoded[index % len(self.files)] if HEALTHY else self.decode(self.files[index % len(self.files)])

    def decode(self, file):
        return self.transform(Image.open(file).convert("RGB"))


if __name__ == "__main__":
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 7), torch.nn.Flatten(), torch.nn.LazyLinear(1))
    model(torch.zeros(1, 3, 64, 64))
    loader = DataLoader(Photos(), batch_size=4, num_workers=2)
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    for batch in loader:
        optimizer.zero_grad()
        model(batch[:, :, ::8, ::8].float() / 255).square().mean().backward()
        optimizer.step()
