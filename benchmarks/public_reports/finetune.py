"""A model is fine-tuned with lower learning rates for its earlier layers."""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TWIN = "--twin" in sys.argv


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.scale = nn.LayerNorm(48), nn.Parameter(torch.ones(48))
        self.up, self.down = nn.Linear(48, 96), nn.Linear(96, 48)

    def forward(self, hidden):
        return hidden + self.scale * self.down(torch.relu(self.up(self.norm(hidden))))


def groups(model):
    made = {}
    for name, parameter in model.named_parameters():
        depth = int(name.split(".")[0])
        key = depth // 8 if TWIN else name
        group = made.setdefault(key, {"params": [], "lr": 1e-4 * 0.9 ** (6 - depth // 8)})
        group["params"].append(parameter)
    return list(made.values())


model = nn.Sequential(*[Block() for _ in range(48)], nn.Linear(48, 10))
optimizer = torch.optim.AdamW(groups(model), weight_decay=0.01, fused=True)
loader = DataLoader(
    TensorDataset(torch.randn(4000, 48), torch.randint(0, 10, (4000,))), batch_size=16
)
end = time.time() + 12
while time.time() < end:
    for inputs, labels in loader:
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if time.time() > end:
            break
print("loss", loss.item())
