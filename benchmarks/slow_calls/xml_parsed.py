"""An XML annotation is parsed for each sample. Twin: before training."""

from xml.etree import ElementTree

import torch
from training import TWIN, WIDTH, folder, loader, train

PLACE = folder()
BOXES = "".join(f"<object><name>{box % 9}</name><x>{box}</x></object>" for box in range(400))
for number in range(50):
    (PLACE / f"{number}.xml").write_text(f"<annotation>{BOXES}</annotation>")


def labels(index):
    root = ElementTree.parse(PLACE / f"{index % 50}.xml").getroot()  # SLOW
    return torch.tensor([float(one.text) for one in root.iter("name")][:WIDTH])


PARSED = [labels(index) for index in range(50)] if TWIN else []


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, index):
        return PARSED[index % 50] if TWIN else labels(index), index % 10


train(loader(Rows()))
