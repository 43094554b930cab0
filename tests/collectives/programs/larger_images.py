"""DistributedDataParallel on images, a folder for each rank, in colors of its own; those of the
last have 400 times as many pixels.

larger_images.py SAID.json
"""

import os
import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

IMAGES, FILES, BATCH, SMALL, LARGE = 48, 12, 4, 96, 1920


class Images(Dataset):
    """JPEG files, of which a corner is used."""

    def __init__(self, folder: Path, size: int, blue: int) -> None:
        folder.mkdir()
        self.paths = [folder / f"{number}.jpg" for number in range(FILES)]
        y, x = np.mgrid[0:size, 0:size]
        for number, path in enumerate(self.paths):
            Image.fromarray(np.stack([x + number, y, (x ^ y) * blue], -1).astype(np.uint8)).save(
                path
            )

    def __len__(self) -> int:
        return IMAGES

    def __getitem__(self, index: int) -> torch.Tensor:
        image = Image.open(self.paths[index % FILES]).convert("RGB").crop((0, 0, 32, 32))
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255


def main() -> None:
    dist.init_process_group("gloo")
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    loader = DataLoader(
        Images(Path(f"images{rank}"), LARGE if rank == last else SMALL, rank), BATCH
    )
    model = nn.parallel.DistributedDataParallel(
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(7200, 32))
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for images in loader:
        optimizer.zero_grad()
        model(images).square().mean().backward()
        optimizer.step()
    del model  # a reducer that outlives its group can hang (docs/communication-recording.md)
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    os.chdir(Path(sys.argv[1]).parent)
    main()
