"""Train a ResNet on a folder of images, as anyone would write it.

python examples/train_imagefolder.py data/photos --epochs 2 --workers 2
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import models, transforms
from torchvision.datasets import ImageFolder

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet


def make_loader(args: argparse.Namespace, device: torch.device) -> DataLoader:
    transform = transforms.Compose(
        [
            transforms.RandomResizedCrop(args.size),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]
    )
    return DataLoader(
        ImageFolder(args.data, transform),
        batch_size=args.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=args.workers,
        pin_memory=device.type == "cuda",
        multiprocessing_context=args.start_method if args.workers else None,
    )


def train_epoch(
    model: nn.Module, loader: DataLoader, optimizer: torch.optim.Optimizer, device: torch.device
) -> float:
    """One pass over the data; returns the mean loss."""
    model.train()
    criterion = nn.CrossEntropyLoss()
    total = torch.zeros((), device=device)
    for images, labels in loader:
        images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        loss = criterion(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return total.item() / len(loader)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", help="a folder with one folder of images per class")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--size", type=int, default=224, help="pixels per side that the model sees")
    parser.add_argument("--model", default="resnet18", help="a classification model of torchvision")
    parser.add_argument(
        "--start-method",
        choices=["fork", "spawn", "forkserver"],
        help="of the workers; default: Python's own",
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, ...")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    torch.manual_seed(0)
    device = torch.device(
        args.device if args.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    )
    loader = make_loader(args, device)
    model = models.get_model(args.model, num_classes=len(loader.dataset.classes)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    for epoch in range(args.epochs):
        started = time.perf_counter()
        loss = train_epoch(model, loader, optimizer, device)
        images = len(loader) * args.batch_size
        print(
            f"epoch {epoch}: loss {loss:.3f}, {images / (time.perf_counter() - started):.0f} "
            f"images/s",
            flush=True,
        )


if __name__ == "__main__":
    main()
