"""Properties of small graphs are learnt; each batch of them is one large graph.

https://github.com/rampasek/GraphGPS/issues/43
"""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

TWIN = "--twin" in sys.argv
GRAPHS, NODES = 2000, 12


def pairs(count):
    """All pairs of nodes, as two rows."""
    if TWIN:
        nodes = torch.arange(count)
        return torch.stack([nodes.repeat_interleave(count), nodes.repeat(count)])
    index = torch.empty(2, count**2, dtype=torch.long)
    for i in range(count):
        for j in range(count):
            index[0, i * count + j] = i
            index[1, i * count + j] = j
    return index


def together(graphs):
    features, labels = zip(*graphs)
    index = torch.cat([pairs(NODES) + NODES * number for number in range(len(graphs))], 1)
    return torch.cat(features), index, torch.stack(labels)


class Network(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.inner, self.outer = nn.Linear(8, width), nn.Linear(width, 1)

    def forward(self, nodes, index):
        hidden = self.inner(nodes).relu()
        hidden = torch.zeros_like(hidden).index_add(0, index[1], hidden[index[0]])
        return self.outer(hidden).view(-1, NODES).mean(1)


model = Network()
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
graphs = [(torch.randn(NODES, 8), torch.randn(())) for _ in range(GRAPHS)]
end = time.time() + 12
while time.time() < end:
    for nodes, index, labels in DataLoader(graphs, 8, shuffle=True, collate_fn=together):
        loss = nn.functional.mse_loss(model(nodes, index), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if time.time() > end:
            break
print("loss", loss.item())
