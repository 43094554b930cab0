"""Clicks are read by a thread, a few batches ahead of the training."""

import queue
import random
import sys
import threading

import torch
from torch import nn

TWIN = "--twin" in sys.argv
FIELDS = 12


def lines():
    generator = random.Random(0)
    for number in range(200000):
        fields = [str(generator.randrange(1000)) for _ in range(FIELDS)]
        if number % 40000 == 39999:
            fields[3] = ""
        yield ",".join([str(number % 2), *fields])


def parsed(line):
    clicked, *fields = line.split(",")
    return int(clicked), [int(field) for field in fields]


class Ahead(threading.Thread):
    """Reads batches into a queue."""

    def __init__(self, size=64):
        super().__init__(daemon=True)
        self.size, self.batches = size, queue.Queue(8)

    def run(self):
        rows = []
        for line in lines():
            if TWIN and ",," in line:
                continue
            rows.append(parsed(line))
            if len(rows) == self.size:
                clicked, fields = zip(*rows)
                self.batches.put((torch.tensor(clicked), torch.tensor(fields)))
                rows = []
        self.batches.put(None)


model = nn.Sequential(nn.EmbeddingBag(1000, 64), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 2))
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
ahead = Ahead()
ahead.start()
while (batch := ahead.batches.get()) is not None:
    clicked, fields = batch
    loss = nn.functional.cross_entropy(model(fields), clicked)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss", loss.item())
