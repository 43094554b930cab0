"""A folder is listed for each sample. Twin: once."""

import glob

import torch
from training import TWIN, WIDTH, folder, loader, train

PLACE = folder()
for number in range(1500):
    (PLACE / f"{number}.txt").write_text(str(number))


def files():
    return sorted(glob.glob(f"{PLACE}/*.txt"))  # SLOW


LISTED = files() if TWIN else []


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 1500

    def __getitem__(self, index):
        with open((LISTED or files())[index]) as file:
            return torch.full((WIDTH,), float(file.read())), index % 10


train(loader(Rows()))
