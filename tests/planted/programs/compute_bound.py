"""A model that is far slower than its loader. There is no fault in it."""

import pathlib
import sys

import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

torch.set_num_threads(1)


class Photos(Dataset):
    files = sorted(pathlib.Path(sys.argv[1]).glob("*.jpg"))
    transform = transforms.Compose([transforms.CenterCrop(64), transforms.PILToTensor()])

    def __len__(self):
        return 4 * 16

    def __getitem__(self, index):
        return self.transform(Image.open(self.files[index % len(self.files)]).convert("RGB"))


class Slow(torch.nn.Module):
    weight = torch.rand(2048, 2048) / 1024

    def forward(self, batch):
        for _ in range(2):  # 0.2 s to 0.5 s on one CPU
            self.weight @ self.weight
        return batch


if __name__ == "__main__":
    model = torch.nn.Sequential(
        Slow(), torch.nn.Conv2d(3, 16, 3, stride=4), torch.nn.Flatten(), torch.nn.LazyLinear(1)
    )
    model(torch.zeros(1, 3, 64, 64))
    loader = DataLoader(Photos(), batch_size=4, num_workers=1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    for batch in loader:
        optimizer.zero_grad()
        model(batch.float() / 255).square().mean().backward()
        optimizer.step()
