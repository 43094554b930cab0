"""Train a small network on MNIST-1D: the same samples and rate in small batches or in large ones.

python examples/train_digits.py --batch-size 32
python examples/train_digits.py --batch-size 256
"""

import argparse

import torch
from mnist1d.data import get_dataset_args, make_dataset
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import feedline


def digits() -> tuple[TensorDataset, TensorDataset]:
    """4,096 training and 1,024 test samples; the same ones every time."""
    arguments = get_dataset_args()
    arguments.num_samples = 5120
    data = make_dataset(arguments)
    return tuple(
        TensorDataset(torch.tensor(data[x], dtype=torch.float32), torch.tensor(data[y]))
        for x, y in (("x", "y"), ("x_test", "y_test"))
    )


def accuracy(model: nn.Module, test: TensorDataset) -> float:
    samples, labels = test.tensors
    model.eval()
    with torch.no_grad():
        hits = (model(samples).argmax(1) == labels).float().mean().item()
    model.train()
    return hits


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    torch.manual_seed(args.seed)
    train, test = digits()
    model = nn.Sequential(
        nn.Linear(40, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    for _ in range(args.epochs):
        for samples, labels in DataLoader(train, args.batch_size, shuffle=True):
            halves = zip(
                samples.chunk(2), labels.chunk(2), strict=True
            )  # accumulated, so the noise scale can be measured
            for some, theirs in halves:
                (criterion(model(some), theirs) / 2).backward()
            optimizer.step()
            optimizer.zero_grad()
        feedline.metric("test accuracy", accuracy(model, test))
    print(f"test accuracy {accuracy(model, test):.1%}")


if __name__ == "__main__":
    main()
