"""Pairs of sentences are classified by a transformer."""

import random
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TWIN = "--twin" in sys.argv
LONGEST = 128


class Pairs(Dataset):
    def __init__(self):
        lengths = [random.choice([8, 12, 16, 20, 24]) for _ in range(4000)]
        self.tokens = [torch.randint(1, 3000, (length,)) for length in lengths]

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return self.tokens[index], index % 3


def padded(samples):
    longest = max(len(tokens) for tokens, _ in samples) if TWIN else LONGEST
    batch = torch.zeros(len(samples), longest, dtype=torch.long)
    for row, (tokens, _) in enumerate(samples):
        batch[row, : len(tokens)] = tokens
    return batch, torch.tensor([label for _, label in samples])


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(3000, 64, padding_idx=0)
        layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.out = nn.Linear(64, 3)

    def forward(self, tokens):
        hidden = self.encoder(self.embedding(tokens), src_key_padding_mask=tokens == 0)
        return self.out(hidden[:, 0])


model = Classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
loader = DataLoader(Pairs(), batch_size=16, shuffle=True, collate_fn=padded)
end = time.time() + 12
while time.time() < end:
    for tokens, labels in loader:
        loss = nn.functional.cross_entropy(model(tokens), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if time.time() > end:
            break
print("loss", loss.item())
