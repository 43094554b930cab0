"""torch.multiprocessing.spawn starts two ranks that decode JPEGs in a worker each.

Only the call names the rank, no variable does.
"""

from pathlib import Path

import counted
import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from PIL import Image
from torch.utils.data import Dataset

PHOTOS = Path(__file__).with_name("photos")


class Photos(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        with Image.open(PHOTOS / f"{index}.jpg") as image:
            pixels = np.array(image.convert("RGB"), np.float32)
        return torch.from_numpy(pixels).mean((0, 1)).new_tensor([1.0, *pixels.mean((0, 1)) / 255])


def write(count):
    PHOTOS.mkdir()
    for number in range(count):
        noise = np.random.default_rng(number).integers(0, 255, (48, 64, 3), np.uint8)
        Image.fromarray(noise).save(PHOTOS / f"{number}.jpg")


def rank_of_two(rank, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    counted.train_rank("group", rank, 2, dataset=Photos(6 * (4 + rank) - 1), workers=1)


if __name__ == "__main__":
    write(30)
    mp.spawn(rank_of_two, args=(Path(__file__).with_name("store").resolve(),), nprocs=2)
