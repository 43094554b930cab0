"""A model of words turns its queries and keys by their places.

https://github.com/sgl-project/sglang/pull/19842
"""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TWIN = "--twin" in sys.argv
HEADS, WIDE, LONG, MOST = 4, 16, 32, 4096


def turns():
    """How far each place is turned."""
    rates = 1.0 / 10000 ** (torch.arange(0, WIDE, 2).float() / WIDE)
    angles = torch.outer(torch.arange(MOST).float(), rates).repeat(1, 2)
    return angles.cos()[:LONG], angles.sin()[:LONG]


def turned(parts, cos, sin):
    left, right = parts.chunk(2, dim=-1)
    return parts * cos + torch.cat([-right, left], -1) * sin


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.Linear(HEADS * WIDE, HEADS * WIDE * 3)
        self.out = nn.Linear(HEADS * WIDE, HEADS * WIDE)

    def forward(self, words, known):
        cos, sin = known if TWIN else turns()
        parts = self.parts(words).view(*words.shape[:2], 3, HEADS, WIDE)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        query, key = turned(query, cos, sin), turned(key, cos, sin)
        seen = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return words + self.out(seen.transpose(1, 2).flatten(2))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(200, HEADS * WIDE)
        self.layers = nn.ModuleList(Layer() for _ in range(6))
        self.scores = nn.Linear(HEADS * WIDE, 200)
        self.known = turns()

    def forward(self, words):
        seen = self.words(words)
        for layer in self.layers:
            seen = layer(seen, self.known)
        return self.scores(seen)


model = Model()
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
texts = TensorDataset(torch.randint(0, 200, (800, LONG + 1)))
end, steps = time.time() + 14, 0
while time.time() < end:
    for (words,) in DataLoader(texts, batch_size=8, shuffle=True):
        loss = nn.functional.cross_entropy(
            model(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten()
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
        if time.time() > end:
            break
print("loss", loss.item(), "steps", steps)
