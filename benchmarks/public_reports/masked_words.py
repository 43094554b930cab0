"""An encoder of texts that learns to guess words that are hidden from it."""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TWIN = "--twin" in sys.argv
WORDS, MASK = 8000, 1


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 96)
        layer = nn.TransformerEncoderLayer(96, 4, 192, batch_first=True, dropout=0.0)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.words = nn.Linear(96, WORDS)

    def forward(self, tokens, labels):
        hidden = self.layers(self.embedding(tokens)).flatten(0, 1)
        labels = labels.flatten()
        if TWIN:
            hidden, labels = hidden[labels >= 0], labels[labels >= 0]
        return nn.functional.cross_entropy(self.words(hidden), labels, ignore_index=-100)


def hide(batch):
    (tokens,) = (torch.stack(column) for column in zip(*batch))
    hidden = torch.rand(tokens.shape) < 0.15
    return tokens.masked_fill(hidden, MASK), tokens.masked_fill(~hidden, -100)


model = Encoder()
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
texts = TensorDataset(torch.randint(2, WORDS, (4000, 48)))
end = time.time() + 12
while time.time() < end:
    for tokens, labels in DataLoader(texts, batch_size=8, shuffle=True, collate_fn=hide):
        loss = model(tokens, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if time.time() > end:
            break
print("loss", loss.item())
