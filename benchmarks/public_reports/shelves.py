"""Products are found on shelves: each guess is given to the true box that it fits best.

https://github.com/ultralytics/ultralytics/pull/26150
"""

import sys
import time

import torch
from scipy.optimize import linear_sum_assignment
from torch import nn
from torch.utils.data import DataLoader, Dataset

TWIN = "--twin" in sys.argv
GUESSES = 60


class Shelves(Dataset):
    def __len__(self):
        return 640

    def __getitem__(self, index):
        return torch.randn(256), torch.rand(30 + index % 20, 4)


def collate(samples):
    images, boxes = zip(*samples)
    return torch.stack(images), list(boxes)


@torch.no_grad()
def pairs(guesses, boxes):
    """Which guess belongs to which box, for each image."""
    if TWIN:
        costs = [torch.cdist(guess, true, p=1) for guess, true in zip(guesses, boxes)]
    else:
        together = torch.cdist(guesses.flatten(0, 1), torch.cat(boxes), p=1)
        parts = together.view(len(guesses), GUESSES, -1).split([len(box) for box in boxes], 2)
        costs = [part[image] for image, part in enumerate(parts)]
    return [linear_sum_assignment(cost) for cost in costs]


def loss_of(guesses, boxes):
    total = 0.0
    for guess, true, (rows, columns) in zip(guesses, boxes, pairs(guesses, boxes)):
        total = total + nn.functional.l1_loss(guess[rows], true[columns])
    return total / len(boxes)


model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, GUESSES * 4))
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
loader = DataLoader(Shelves(), batch_size=32, shuffle=True, collate_fn=collate)
end, steps = time.time() + 14, 0
while time.time() < end:
    for images, boxes in loader:
        loss = loss_of(model(images).view(-1, GUESSES, 4).sigmoid(), boxes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
        if time.time() > end:
            break
print("loss", loss.item(), "steps", steps)
