"""Train with DistributedDataParallel on the CPU, with one rank whose data come from slower storage.

feedline run -- torchrun --standalone --nproc-per-node 4 examples/train_ddp.py --slow-rank 3
"""

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Clips(Dataset):
    """Random vectors, each of which takes ``read_s`` to read, as from a disk or over a network."""

    def __init__(self, count: int, read_s: float) -> None:
        self.count, self.read_s = count, read_s

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        time.sleep(self.read_s)
        return torch.randn(512, generator=torch.Generator().manual_seed(index)), index % 10


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=4096)
    parser.add_argument("--batch-size", type=int, default=32, help="per rank")
    parser.add_argument(
        "--slow-rank",
        type=int,
        default=-1,
        help="the rank that reads four times as slowly (default: none)",
    )
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = Clips(args.samples, 0.004 if rank == args.slow_rank else 0.001)
    loader = DataLoader(data, args.batch_size, sampler=DistributedSampler(data), num_workers=1)
    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    criterion = nn.CrossEntropyLoss()
    for samples, labels in loader:
        loss = criterion(model(samples), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if rank == 0:
        print(f"loss {loss.item():.3f}")
    del model  # its reducer must not outlive the process group
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
