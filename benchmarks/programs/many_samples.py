"""A training of very many very small samples, in workers, with operations that have taps. Started
by size.py; also runs by itself.

python benchmarks/programs/many_samples.py --samples 1280000
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Thumbnails(Dataset[torch.Tensor]):
    """Samples of 16 numbers that pass two operations of Pillow, so that samples in detail have
    spans.
    """

    def __init__(self, samples: int) -> None:
        self._samples, self._image, self._value = samples, Image.new("L", (4, 4)), torch.ones(16)

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> torch.Tensor:
        self._image.transpose(Image.Transpose.FLIP_LEFT_RIGHT).resize((2, 2))
        return self._value


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, required=True)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument(
        "--nearly-done", type=Path, help="a file to make when 99 %% of the batches are through"
    )
    args = parser.parse_args()
    torch.set_num_threads(1)
    loader: DataLoader[Any] = DataLoader(
        Thumbnails(args.samples), args.batch, num_workers=args.workers, shuffle=True
    )
    model, criterion = nn.Linear(16, 1), nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    last = len(loader) * 99 // 100
    for number, batch in enumerate(loader):
        loss = criterion(model(batch), batch[:, :1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number == last and args.nearly_done:
            args.nearly_done.touch()


if __name__ == "__main__":
    main()
