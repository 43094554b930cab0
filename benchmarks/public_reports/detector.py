"""Objects are told from patches of pictures by layers of attention.

https://github.com/lyuwenyu/RT-DETR/issues/678
"""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TWIN = "--twin" in sys.argv


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 8, batch_first=True)
        self.norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, patches):
        seen = self.norm(patches)
        if TWIN:
            seen, _ = self.attention(seen, seen, seen, need_weights=False)
        else:
            seen, _ = self.attention(seen, seen, seen)
        patches = patches + seen
        return patches + self.mlp(patches)


class Detector(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, stride=4)
        self.layers = nn.Sequential(*[Layer(width) for _ in range(3)])
        self.boxes = nn.Linear(width, 4)

    def forward(self, pictures):
        patches = self.patches(pictures).flatten(2).transpose(1, 2)
        return self.boxes(self.layers(patches)).mean(1)


model = Detector()
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
pictures = TensorDataset(torch.rand(400, 3, 64, 64), torch.rand(400, 4))
end = time.time() + 15
while time.time() < end:
    for seen, boxes in DataLoader(pictures, batch_size=4, shuffle=True):
        loss = nn.functional.l1_loss(model(seen), boxes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if time.time() > end:
            break
print("loss", loss.item())
