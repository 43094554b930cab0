"""A robot learns to grasp; a thread prepares the next batches meanwhile.

https://github.com/BerkeleyAutomation/gqcnn/pull/45
"""

import multiprocessing
import queue
import random
import sys
import threading
import time

import torch
from torch import nn

TWIN = "--twin" in sys.argv


def grasp():
    """One grasp, and how well it holds."""
    points = [random.gauss(0.0, 1.0) for _ in range(60)]
    center = sum(points) / len(points)
    return [point - center for point in points], sum(x * x for x in points) / 60


def prepare(batches):
    while True:
        grasps, holds = zip(*(grasp() for _ in range(32)))
        batches.put((list(grasps), list(holds)))


if TWIN:
    batches = multiprocessing.Queue(8)
    multiprocessing.Process(target=prepare, args=(batches,), daemon=True).start()
else:
    batches = queue.Queue(8)
    threading.Thread(target=prepare, args=(batches,), daemon=True).start()

layers = [layer for _ in range(12) for layer in (nn.Linear(60, 60), nn.ReLU())]
model = nn.Sequential(*layers, nn.Linear(60, 1))
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
end, steps = time.time() + 14, 0
while time.time() < end:
    grasps, holds = batches.get()
    loss = nn.functional.mse_loss(model(torch.tensor(grasps))[:, 0], torch.tensor(holds))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
print("loss", loss.item(), "steps", steps)
