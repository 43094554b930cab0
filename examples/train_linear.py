"""Train a linear classifier on photographs as large as it needs them: hardly any computing, so the input decides how fast it is.

python examples/train_linear.py data/crops --workers 2
python examples/train_linear.py data/arrays --workers 2 --cold
"""

import argparse
import os
from collections.abc import Iterable

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import DatasetFolder
from torchvision.transforms.functional import pil_to_tensor

SIDE = 320  # px


def read(path: str) -> torch.Tensor:
    """Decode a JPEG, or load the pixels that `photos.py --arrays` stored; uint8 [3, height, width]."""
    if path.endswith(".npy"):
        return torch.from_numpy(np.load(path)).permute(2, 0, 1)
    return pil_to_tensor(Image.open(path).convert("RGB"))


def drop_from_cache(paths: Iterable[str]) -> None:
    """Have the kernel forget the files' pages, so that the disk is read: as in each epoch over data that do not fit into memory."""
    os.sync()
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="a folder with one folder of JPEGs or arrays per class")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cold", action="store_true", help="drop the files from the page cache before each epoch")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    torch.manual_seed(0)
    data = DatasetFolder(args.data, read, (".jpg", ".npy"), transforms.RandomCrop(SIDE))
    loader = DataLoader(data, args.batch_size, shuffle=True, drop_last=True, num_workers=args.workers)
    model = nn.Sequential(nn.AvgPool2d(16), nn.Flatten(), nn.Linear(3 * (SIDE // 16) ** 2, len(data.classes)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(args.epochs):
        if args.cold:
            drop_from_cache(path for path, _ in data.samples)
        for images, labels in loader:
            loss = criterion(model(images.float() / 255), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
