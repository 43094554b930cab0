"""Train on rows of a table that is memory-mapped; with --cold none of them is in memory, as when
the table is larger than that.

python examples/train_table.py data/table.npy --cold
"""

import argparse
import mmap
import os
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

ROWS, COLUMNS = 65_536, 1024  # 4 KiB per row, 268 MB
GATHERED = 16  # rows per sample, such as the neighbors of a node in a graph


class Neighbors(Dataset):
    """Means of random rows of a table."""

    def __init__(self, path: Path, count: int) -> None:
        self.table, self.count = np.load(path, mmap_mode="r"), count
        self.table._mmap.madvise(mmap.MADV_RANDOM)  # read what is asked for, and nothing around it

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        rows = self.table[np.random.default_rng().integers(0, ROWS, GATHERED)]
        return rows.mean(0), int(rows[0, 0] > 0)


def write_table(path: Path) -> None:
    table = np.lib.format.open_memmap(path, "w+", np.float32, (ROWS, COLUMNS))
    dice = np.random.default_rng(0)
    for start in range(0, ROWS, 4096):
        table[start : start + 4096] = dice.standard_normal((4096, COLUMNS), np.float32)
    table.flush()


def drop_from_cache(path: Path) -> None:
    """Have the kernel forget the file's pages, so that they are read from the disk again."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", type=Path, help="a .npy file, which is written if it is not there")
    parser.add_argument("--samples", type=int, default=4096)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--cold", action="store_true", help="drop the table from the page cache first"
    )
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    torch.manual_seed(0)
    if not args.table.exists():
        write_table(args.table)
    if args.cold:
        drop_from_cache(args.table)
    loader = DataLoader(
        Neighbors(args.table, args.samples), args.batch_size, num_workers=args.workers
    )
    model = nn.Sequential(nn.Linear(COLUMNS, 256), nn.ReLU(), nn.Linear(256, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    criterion = nn.CrossEntropyLoss()
    for rows, labels in loader:
        loss = criterion(model(rows), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
