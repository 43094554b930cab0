"""One photograph in twenty is far away, and every batch behind it waits.

Healthy: batches in the order in which they are ready.
"""

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
        return 4 * 100

    def __getitem__(self, index):
        time.sleep(0.15 if index % 20 == 7 else 0.001)
        return self.transform(Image.open(self.files[index % len(self.files)]).convert("RGB"))


if __name__ == "__main__":
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, stride=4), torch.nn.Flatten(), torch.nn.LazyLinear(1)
    )
    model(torch.zeros(1, 3, 64, 64))
    loader = DataLoader(Photos(), batch_size=4, num_workers=2, in_order=HEALTHY is False)
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    for batch in loader:
        optimizer.zero_grad()
        model(batch.float() / 255).square().mean().backward()
        optimizer.step()
        time.sleep(0.02)  # an accelerator computes
