"""Fine-tunes a small transformer."""

import sys
import time

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

TWIN = "--twin" in sys.argv


class Model(nn.Module):
    def __init__(self, layers=6, width=64):
        super().__init__()
        self.embed = nn.Embedding(500, width)
        self.layers = nn.ModuleList(
            [nn.TransformerEncoderLayer(width, 4, 128, batch_first=True) for _ in range(layers)]
        )
        self.head = nn.Linear(width, 500)
        self.gradient_checkpointing = not TWIN

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = (
                checkpoint(layer, x, use_reentrant=False)
                if self.gradient_checkpointing
                else layer(x)
            )
        return self.head(x)


model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
loader = DataLoader(TensorDataset(torch.randint(0, 500, (2000, 33))), batch_size=8, shuffle=True)
end = time.time() + 12
while time.time() < end:
    for (tokens,) in loader:
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.reshape(-1, 500), tokens[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if time.time() > end:
            break
print("loss", loss.item())
