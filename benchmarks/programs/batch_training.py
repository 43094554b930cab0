"""A small training on mnist1d as a user would write it; its flags plant what `feedline converge
advise` has to find.

It knows of feedline only where it gives it an accuracy. Under torchrun it trains with
DistributedDataParallel on gloo.
"""

import argparse
import contextlib
import copy
import os

import torch
from mnist1d.data import get_dataset_args, make_dataset
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import feedline

TRAIN, TEST = 4096, 1904


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--batch", type=int, default=32, help="samples of an update, all ranks together"
    )
    parser.add_argument("--micro", type=int, default=1, help="micro-batches in an update")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--rate", type=float, default=0.08)
    parser.add_argument("--decay", type=float, default=5e-4)
    parser.add_argument("--adam", action="store_true")
    parser.add_argument("--norm", action="store_true", help="batch norm")
    parser.add_argument(
        "--momentum", type=float, default=0.1, help="of batch norm's running statistics"
    )
    parser.add_argument("--examples", type=int, default=TRAIN)
    parser.add_argument("--channels", type=int, default=16)
    parser.add_argument("--one-order", action="store_true", help="forget the DistributedSampler")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def data(examples: int) -> tuple[TensorDataset, torch.Tensor, torch.Tensor]:
    """Training set, test inputs and test labels; made, not downloaded."""
    settings = get_dataset_args()
    train = max(examples, TRAIN)
    settings.num_samples, settings.train_split = (
        train + TEST,
        (train + 0.5) / (train + TEST),
    )  # it is rounded down
    made = make_dataset(settings)
    x, y, x_test, y_test = (torch.as_tensor(made[name]) for name in ("x", "y", "x_test", "y_test"))
    return (
        TensorDataset(x.float()[:examples, None], y.long()[:examples]),
        x_test.float()[:, None],
        y_test.long(),
    )


def network(args: argparse.Namespace) -> nn.Module:
    c = args.channels
    layers: list[nn.Module] = []
    for before, width in ((1, 5), (c, 3), (c, 3)):
        layers.append(nn.Conv1d(before, c, width, 2, 1))
        layers += [nn.BatchNorm1d(c, momentum=args.momentum)] if args.norm else []
        layers.append(nn.ReLU())
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(c * 5, 10))


@torch.no_grad()
def accuracy(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    model.eval()
    right = (model(x).argmax(1) == y).float().mean().item()
    model.train()
    return right


def recalibrated(model: nn.Module, x: torch.Tensor) -> nn.Module:
    """A copy whose running statistics are those of the training data under the weights as they are."""
    fresh = copy.deepcopy(model)
    for layer in fresh.modules():
        if isinstance(layer, nn.BatchNorm1d):
            layer.reset_running_stats()
            layer.momentum = None
    with torch.no_grad():
        fresh.train()(x)
    return fresh


def main() -> None:
    args = arguments()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    ranks = int(os.environ.get("WORLD_SIZE", 1))
    train, x_test, y_test = data(args.examples)
    model = plain = network(args)
    if ranks > 1:
        torch.distributed.init_process_group("gloo")
        model = DistributedDataParallel(plain)
    apart = ranks > 1 and not args.one_order
    sampler = DistributedSampler(train, seed=args.seed) if apart else None
    loader = DataLoader(
        train,
        args.batch // ranks // args.micro,
        shuffle=sampler is None,
        sampler=sampler,
        drop_last=True,
    )
    if args.adam:
        optimizer: torch.optim.Optimizer = torch.optim.AdamW(
            model.parameters(), lr=args.rate, weight_decay=args.decay
        )
    else:
        optimizer = torch.optim.SGD(
            model.parameters(), lr=args.rate, momentum=0.9, weight_decay=args.decay
        )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, len(loader) // args.micro * args.epochs
    )
    for epoch in range(args.epochs):
        if sampler is not None:
            sampler.set_epoch(epoch)
        for number, (x, y) in enumerate(loader):
            last = (number + 1) % args.micro == 0
            with contextlib.nullcontext() if last or ranks == 1 else model.no_sync():
                (functional.cross_entropy(model(x), y) / args.micro).backward()
            if last:
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
        feedline.metric("test accuracy", accuracy(plain, x_test, y_test))
        if args.norm:
            again = recalibrated(plain, train.tensors[0])
            feedline.metric("test accuracy recalibrated", accuracy(again, x_test, y_test))
    print(f"test accuracy {accuracy(plain, x_test, y_test):.4f}", flush=True)
    if ranks > 1:
        del model  # a reducer that outlives its group can hang (docs/communication-recording.md)
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
