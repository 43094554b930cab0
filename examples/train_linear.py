"""Train a linear classifier on crops of photographs: hardly any computing, so the input decides how
fast it is.

python examples/train_linear.py data/crops
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder

SIDE, STRIDE = 320, 8  # px: of a crop, and from one pixel that the model sees to the next


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", help="a folder with one folder of images per class")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--workers", type=int, default=2)
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    torch.manual_seed(0)
    data = ImageFolder(
        args.data, transforms.Compose([transforms.RandomCrop(SIDE), transforms.PILToTensor()])
    )
    loader = DataLoader(
        data, args.batch_size, shuffle=True, drop_last=True, num_workers=args.workers
    )
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * (SIDE // STRIDE) ** 2, len(data.classes)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(args.epochs):
        for images, labels in loader:
            loss = criterion(model(images[:, :, ::STRIDE, ::STRIDE] / 255), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
