"""A gzip file is unpacked to get a slice of it. Twin: an uncompressed file."""

import gzip

import numpy as np
import torch
from training import TWIN, WIDTH, folder, loader, train

PLACE = folder()
DATA = np.arange(4000 * WIDTH, dtype=np.float32).reshape(4000, WIDTH)
(PLACE / "volume.gz").write_bytes(gzip.compress(DATA.tobytes(), 1))
np.save(PLACE / "volume.npy", DATA)


class Slices(torch.utils.data.Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, index):
        if TWIN:
            return np.load(PLACE / "volume.npy", mmap_mode="r")[index].copy(), index % 10
        with gzip.open(PLACE / "volume.gz") as file:
            data = file.read()  # SLOW
        return np.frombuffer(data, np.float32).reshape(4000, WIDTH)[index].copy(), index % 10


train(loader(Slices()))
