"""A sampler that makes every sample to know its length, in each pass. Healthy: it keeps the lengths."""

import pathlib
import random
import sys

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
        return 10 * len(self.files)

    def __getitem__(self, index):
        return self.transform(Image.open(self.files[index % len(self.files)]).convert("RGB"))


class ByLength:
    def __init__(self, photos):
        self.photos, self.kept = photos, None

    def __len__(self):
        return len(self.photos)

    def __iter__(self):
        lengths = self.kept or [len(self.photos[index]) for index in range(len(self.photos))]
        if HEALTHY:
            self.kept = lengths
        order = sorted(range(len(lengths)), key=lambda index: (lengths[index], random.random()))
        return iter(order)


if __name__ == "__main__":
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 64 * 64, 8))
    photos = Photos()
    loader = DataLoader(
        photos, batch_size=8, sampler=ByLength(photos), num_workers=1, persistent_workers=True
    )
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    for _epoch in range(8):
        for batch in loader:
            optimizer.zero_grad()
            model(batch.float() / 255).square().mean().backward()
            optimizer.step()
