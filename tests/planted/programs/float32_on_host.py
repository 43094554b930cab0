"""Photographs made into float32 and normalised one by one.

Healthy: uint8 batches, normalised after the loader.
"""

import pathlib
import sys

import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

HEALTHY = "healthy" in sys.argv
torch.set_num_threads(1)
FLOATS = [transforms.ToTensor(), transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))]


class Photos(Dataset):
    files = sorted(pathlib.Path(sys.argv[1]).glob("*.jpg"))
    transform = transforms.Compose([transforms.PILToTensor()] if HEALTHY else FLOATS)

    def __len__(self):
        return 32 * 25

    def __getitem__(self, index):
        return self.transform(Image.open(self.files[index % len(self.files)]).convert("RGB"))


if __name__ == "__main__":
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 28 * 28, 1))
    loader = DataLoader(Photos(), batch_size=32, num_workers=2)
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    for batch in loader:
        optimizer.zero_grad()
        model(batch[:, :, ::8, ::8].float()).square().mean().backward()
        optimizer.step()
