"""A language model; how well it knows words is computed for held-out texts after each epoch.

https://github.com/microsoft/Olive/pull/451
"""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TWIN = "--twin" in sys.argv
WORDS = 500


@torch.no_grad()
def accuracy(model, loader):
    guesses, truths = [], []
    for texts in loader:
        (texts,) = texts
        scores = model(texts[:, :-1])
        if TWIN:
            guesses.append(scores)
            truths.append(texts[:, 1:])
        else:
            guesses.extend(scores.tolist())
            truths.extend(texts[:, 1:].tolist())
    if TWIN:
        guesses, truths = torch.cat(guesses), torch.cat(truths)
    else:
        guesses, truths = torch.tensor(guesses), torch.tensor(truths)
    return (guesses.argmax(2) == truths).float().mean().item()


model = nn.Sequential(nn.Embedding(WORDS, 64), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, WORDS))
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
texts = TensorDataset(torch.randint(0, WORDS, (1600, 33)))
held_out = TensorDataset(torch.randint(0, WORDS, (128, 33)))
end = time.time() + 20
while time.time() < end:
    model.train()
    for (words,) in DataLoader(texts, batch_size=32, shuffle=True):
        scores = model(words[:, :-1])
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), words[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    known = accuracy(model, DataLoader(held_out, batch_size=32))
print("loss", loss.item(), "known", known)
