"""An LMDB environment is opened for each sample. Twin: once per worker."""

import lmdb
import torch
from training import TWIN, WIDTH, folder, loader, train

PLACE = str(folder())
with lmdb.open(PLACE, map_size=1 << 26) as made, made.begin(write=True) as put:
    for row in range(2000):
        put.put(str(row).encode(), bytes([row % 7]) * WIDTH)


class Rows(torch.utils.data.Dataset):
    environment = None

    def __len__(self):
        return 2000

    def __getitem__(self, index):
        if self.environment is None or not TWIN:
            if self.environment is not None:
                self.environment.close()
            self.environment = lmdb.open(PLACE, readonly=True, map_size=1 << 26)  # SLOW
        with self.environment.begin() as get:
            value = get.get(str(index).encode())
        return torch.frombuffer(bytearray(value), dtype=torch.uint8), index % 10


train(loader(Rows(), 256))
