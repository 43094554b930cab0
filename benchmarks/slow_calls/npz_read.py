"""A compressed archive of arrays is read for each sample. Twin: a memory map of one array."""

import numpy as np
import torch
from training import TWIN, WIDTH, folder, loader, train

PLACE = folder()
DATA = np.ones((4000, WIDTH), np.float32)
np.savez_compressed(PLACE / "rows.npz", rows=DATA)
np.save(PLACE / "rows.npy", DATA)


class Rows(torch.utils.data.Dataset):
    mapped = None

    def __len__(self):
        return 4000

    def __getitem__(self, index):
        if TWIN:
            if self.mapped is None:
                self.mapped = np.load(PLACE / "rows.npy", mmap_mode="r")
            row = self.mapped[index]
        else:
            row = np.load(PLACE / "rows.npz")["rows"][index]  # SLOW
        return torch.from_numpy(row.copy()), index % 10


train(loader(Rows()))
