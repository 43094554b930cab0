"""A detector; each image has a list of objects, with a box and an outline."""

import copy
import random
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TWIN = "--twin" in sys.argv


def an_object():
    outline = [random.random() for _ in range(60)]
    box = [min(outline[::2]), min(outline[1::2]), max(outline[::2]), max(outline[1::2])]
    return {"box": box, "outline": [outline], "category": random.randrange(10), "crowd": False}


class Images(Dataset):
    def __init__(self):
        self.images = torch.randint(0, 256, (200, 3, 48, 48), dtype=torch.uint8)
        self.records = [
            {"image": number % 200, "objects": [an_object() for _ in range(12)]}
            for number in range(1500)
        ]

    def __len__(self):
        return len(self.records)

    def __getitem__(self, index):
        record = dict(self.records[index]) if TWIN else copy.deepcopy(self.records[index])
        image = self.images[record.pop("image")] / 255
        boxes = torch.tensor([thing["box"] for thing in record["objects"]])
        if random.random() < 0.5:
            image = image.flip(2)
            boxes[:, [0, 2]] = 1 - boxes[:, [2, 0]]
        return image, boxes


model = nn.Sequential(
    nn.Conv2d(3, 16, 5, stride=3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 15 * 15, 48)
)
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
loader = DataLoader(Images(), batch_size=16, shuffle=True, num_workers=1, persistent_workers=True)
end = time.time() + 12
while time.time() < end:
    for images, boxes in loader:
        loss = nn.functional.l1_loss(model(images).view(-1, 12, 4), boxes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if time.time() > end:
            break
print("loss", loss.item())
