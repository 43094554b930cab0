"""An HDF5 file is opened for each sample. Twin: once per worker."""

import h5py
import numpy as np
import torch
from training import TWIN, WIDTH, folder, loader, train

FILE = folder() / "rows.h5"
with h5py.File(FILE, "w") as made:
    for group in range(20):
        made[f"group {group}/rows"] = np.ones((100, WIDTH), np.float32)


class Rows(torch.utils.data.Dataset):
    file = None

    def __len__(self):
        return 2000

    def __getitem__(self, index):
        if TWIN:
            self.file = self.file or h5py.File(FILE, "r")
            return self.file[f"group {index // 100}/rows"][index % 100], index % 10
        with h5py.File(FILE, "r") as file:  # SLOW
            return file[f"group {index // 100}/rows"][index % 100], index % 10


train(loader(Rows()))
