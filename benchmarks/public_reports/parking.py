"""Places are found in images from above; they are compared with the true ones after each epoch.

https://github.com/Lightning-AI/torchmetrics/issues/677
"""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchvision.ops import box_iou

TWIN = "--twin" in sys.argv
PLACES, LEVELS = 12, [0.5 + 0.05 * i for i in range(10)]


def ious(guess, true):
    """How much two boxes overlap."""
    width = min(guess[2], true[2]) - max(guess[0], true[0])
    height = min(guess[3], true[3]) - max(guess[1], true[1])
    if width <= 0 or height <= 0:
        return 0.0
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (guess, true)]
    return width * height / (sum(areas) - width * height)


def found(guesses, truths):
    """How many places are found, at each of ten levels."""
    if TWIN:
        best = box_iou(truths, guesses).amax(1)
        return sum((best > level).sum().item() for level in LEVELS)
    hits = 0
    for level in LEVELS:
        for true in truths.tolist():
            hits += any(ious(guess, true) > level for guess in guesses.tolist())
    return hits


def boxes(scores):
    corner, size = scores.view(-1, PLACES, 4).sigmoid().split(2, dim=2)
    return torch.cat([corner, corner + size], 2)


@torch.no_grad()
def evaluate(model, loader):
    total = 0
    for images, truths in loader:
        for guesses, true in zip(boxes(model(images)), truths):
            total += found(guesses, true)
    return total


def made(count):
    return TensorDataset(torch.randn(count, 400), boxes(torch.randn(count, PLACES * 4)))


model = nn.Sequential(nn.Linear(400, 512), nn.ReLU(), nn.Linear(512, PLACES * 4))
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
end, train, held_out = time.time() + 20, made(6400), made(160)
while time.time() < end:
    for images, truths in DataLoader(train, batch_size=32, shuffle=True):
        loss = nn.functional.l1_loss(boxes(model(images)), truths)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    hits = evaluate(model, DataLoader(held_out, batch_size=32))
print("loss", loss.item(), "found", hits)
