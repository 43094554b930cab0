"""A blur, a rotation and colours on whole photographs, one by one. Healthy: a crop and a flip."""

import pathlib
import sys

import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

HEALTHY = "healthy" in sys.argv
torch.set_num_threads(1)
COSTLY = [
    transforms.ColorJitter(0.4, 0.4, 0.4, 0.1),
    transforms.GaussianBlur(23),
    transforms.RandomRotation(30),
]
CHEAP = [transforms.CenterCrop(96), transforms.RandomHorizontalFlip(), transforms.PILToTensor()]


class Photos(Dataset):
    files = sorted(pathlib.Path(sys.argv[1]).glob("*.jpg"))
    transform = transforms.Compose(CHEAP if HEALTHY else COSTLY + CHEAP)

    def __len__(self):
        return 4 * 50

    def __getitem__(self, index):
        return self.transform(Image.open(self.files[index % len(self.files)]).convert("RGB"))


if __name__ == "__main__":
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, stride=2), torch.nn.Flatten(), torch.nn.Linear(8 * 47 * 47, 1)
    )
    loader = DataLoader(Photos(), batch_size=4, num_workers=2)
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    for batch in loader:
        optimizer.zero_grad()
        model(batch.float() / 255).square().mean().backward()
        optimizer.step()
