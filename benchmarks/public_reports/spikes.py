"""Keywords are told by a network whose activity is measured every few steps.

https://github.com/NeuroBench/neurobench/issues/184
"""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TWIN = "--twin" in sys.argv


class Activity:
    """Collects what layers give out."""

    def __init__(self, model):
        self.seen = []
        layers = [layer for layer in model if isinstance(layer, nn.ReLU)]
        self.handles = [layer.register_forward_hook(self.note) for layer in layers]

    def note(self, layer, inputs, output):
        self.seen.append(output.detach().clone())

    def share(self):
        return torch.stack([(one > 0).float().mean() for one in self.seen]).mean().item()

    def close(self):
        for handle in self.handles:
            handle.remove()


model = nn.Sequential(
    nn.Linear(200, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 12)
)
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
words = TensorDataset(torch.randn(6400, 200), torch.randint(0, 12, (6400,)))
end, step = time.time() + 25, 0
while time.time() < end:
    for sounds, labels in DataLoader(words, batch_size=64, shuffle=True):
        loss = nn.functional.cross_entropy(model(sounds), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % 400 == 0:
            activity = Activity(model)
            with torch.no_grad():
                model(sounds)
            share = activity.share()
            if TWIN:
                activity.close()
        if time.time() > end:
            break
print("loss", loss.item(), "active", share)
