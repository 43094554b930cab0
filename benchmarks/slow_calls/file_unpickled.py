"""A whole pickled file is loaded for each sample. Twin: once."""

import pickle

import torch
from training import TWIN, WIDTH, folder, loader, train

FILE = folder() / "rows.pkl"
FILE.write_bytes(pickle.dumps([[float(row % 7)] * WIDTH for row in range(2000)]))


def rows():
    with open(FILE, "rb") as file:
        return pickle.load(file)  # SLOW


ALL = rows() if TWIN else []


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 2000

    def __getitem__(self, index):
        return torch.tensor((ALL or rows())[index]), index % 10


train(loader(Rows()))
