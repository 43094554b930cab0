"""Epochs of six steps, and new workers by spawn for each. Healthy: workers that stay."""

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
    transform = transforms.Compose([transforms.CenterCrop(64), transforms.PILToTensor()])

    def __len__(self):
        return 4 * 6

    def __getitem__(self, index):
        return self.transform(Image.open(self.files[index % len(self.files)]).convert("RGB"))


if __name__ == "__main__":
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(16 * 62 * 62, 1),
    )
    loader = DataLoader(
        Photos(),
        batch_size=4,
        num_workers=1,
        multiprocessing_context="spawn",
        persistent_workers=HEALTHY,
    )
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    for _epoch in range(2):
        for batch in loader:
            optimizer.zero_grad()
            model(batch.float() / 255).square().mean().backward()
            optimizer.step()
