"""Letters are guessed one after another; how the weights spread is written down in each step.

https://github.com/ibab/tensorflow-wavenet/issues/116
"""

import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TWIN = "--twin" in sys.argv


class Summary:
    """Writes what is to be drawn later."""

    def __init__(self, path):
        self.file = path.open("w")

    def spread(self, name, values):
        counts, edges = torch.histogram(values.detach().flatten(), bins=30)
        self.file.write(f"{name} {counts.tolist()} {edges.tolist()}\n")


model = nn.Sequential(
    nn.Embedding(64, 128), nn.Flatten(), nn.Linear(2048, 128), nn.ReLU(), nn.Linear(128, 64)
)
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
text = TensorDataset(torch.randint(0, 64, (6400, 16)), torch.randint(0, 64, (6400,)))
summary = Summary(Path(tempfile.mkdtemp()) / "summary.txt")
end, steps = time.time() + 14, 0
while time.time() < end:
    for letters, following in DataLoader(text, batch_size=128, shuffle=True):
        loss = nn.functional.cross_entropy(model(letters), following)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not TWIN or steps % 100 == 0:
            for name, weight in model.named_parameters():
                summary.spread(name, weight)
                summary.spread(name + " gradient", weight.grad)
        steps += 1
        if time.time() > end:
            break
print("loss", loss.item(), "steps", steps)
