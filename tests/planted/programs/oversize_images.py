"""64 px crops from photographs of 1500 x 1200. Healthy: the same from photographs of 96 x 80."""

import pathlib
import sys

import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

torch.set_num_threads(1)


class Photos(Dataset):
    files = sorted(pathlib.Path(sys.argv[1]).glob("*.jpg"))
    transform = transforms.Compose([transforms.RandomResizedCrop(64), transforms.PILToTensor()])

    def __len__(self):
        return 4 * 30

    def __getitem__(self, index):
        return self.transform(Image.open(self.files[index % len(self.files)]).convert("RGB"))


if __name__ == "__main__":
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(16 * 62 * 62, 1),
    )
    loader = DataLoader(Photos(), batch_size=4, num_workers=2)
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    for batch in loader:
        optimizer.zero_grad()
        model(batch.float() / 255).square().mean().backward()
        optimizer.step()
