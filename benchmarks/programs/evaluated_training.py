"""A training on JPEG photographs whose loader may be wrapped by DALI's LoaderEvaluator. Started by
loader_evaluator.py.

python benchmarks/programs/evaluated_training.py data/photos --model resnet18 --mode log --report
out.json
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Subset
from torchvision import models, transforms
from torchvision.datasets import ImageFolder


def build(name: str, classes: int) -> nn.Module:
    """``small`` needs next to nothing, ``resnet18`` and ``resnet50`` what they need."""
    if name == "small":
        return nn.Sequential(
            nn.Conv2d(3, 8, 3, 4),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8, classes),
        )
    made: nn.Module = getattr(models, name)(num_classes=classes)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data")
    parser.add_argument("--model", choices=["small", "resnet18", "resnet50"], required=True)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--samples", type=int, default=400)
    parser.add_argument("--mode", choices=["plain", "log", "replay"], default="plain")
    parser.add_argument("--report", type=Path)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    transform = transforms.Compose(
        [
            transforms.RandomResizedCrop(args.size),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
        ]
    )
    folder = ImageFolder(args.data, transform)
    chosen = Subset(folder, torch.randperm(len(folder))[: args.samples].tolist())
    loader: Any = DataLoader(chosen, batch_size=16, shuffle=True, num_workers=args.workers)
    model = build(args.model, len(folder.classes))
    optimizer, criterion = torch.optim.SGD(model.parameters(), lr=0.01), nn.CrossEntropyLoss()
    started = time.perf_counter()
    if args.mode != "plain":
        from nvidia.dali.plugin.pytorch.loader_evaluator import LoaderEvaluator

        loader = LoaderEvaluator(loader, mode=args.mode)
    ready = time.perf_counter()
    for images, labels in loader:
        loss = criterion(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ended = time.perf_counter()
    if args.report:
        found = {"epoch_s": ended - ready, "caching_s": ready - started, "samples": len(chosen)}
        args.report.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
