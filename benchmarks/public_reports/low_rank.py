"""A model is trained by an optimizer that keeps its state for a part of each gradient of low rank.

https://github.com/jiaweizzhao/GaLore/issues/16
"""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TWIN = "--twin" in sys.argv


class LowRank(torch.optim.Optimizer):
    def __init__(self, weights, lr=1e-3, rank=8, every=50 if TWIN else 1):
        super().__init__(weights, {"lr": lr, "rank": rank, "every": every})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for weight in group["params"]:
                state, gradient = self.state[weight], weight.grad
                if gradient.dim() < 2:
                    weight.sub_(gradient, alpha=group["lr"])
                    continue
                if state.get("steps", 0) % group["every"] == 0:
                    left, _, _ = torch.linalg.svd(gradient, full_matrices=False)
                    state["basis"] = left[:, : group["rank"]]
                state["steps"] = state.get("steps", 0) + 1
                part = state["basis"].T @ gradient
                mean = state.setdefault("mean", torch.zeros_like(part)).lerp_(part, 0.1)
                weight.sub_(state["basis"] @ mean.sign(), alpha=group["lr"])


model = nn.Sequential(
    nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)
)
optimizer = LowRank(model.parameters())
digits = TensorDataset(torch.randn(20000, 128), torch.randint(0, 10, (20000,)))
end = time.time() + 12
while time.time() < end:
    for pictures, labels in DataLoader(digits, batch_size=256, shuffle=True):
        loss = nn.functional.cross_entropy(model(pictures), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if time.time() > end:
            break
print("loss", loss.item())
