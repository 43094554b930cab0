"""A translator that reports its BLEU score."""

import collections
import math
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TWIN = "--twin" in sys.argv


def grams(tokens, n):
    return collections.Counter(tuple(tokens[at : at + n]) for at in range(len(tokens) - n + 1))


def bleu(guesses, references):
    logs = 0.0
    for n in range(1, 5):
        right = total = 0
        for guess, reference in zip(guesses, references):
            of_guess, of_reference = grams(guess, n), grams(reference, n)
            right += sum(min(count, of_reference[gram]) for gram, count in of_guess.items())
            total += sum(of_guess.values())
        logs += math.log((right + 1) / (total + 1)) / 4
    return math.exp(logs)


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(500, 96)
        self.gru = nn.GRU(96, 96, batch_first=True)
        self.out = nn.Linear(96, 500)
        self.score = 0.0

    def forward(self, source, target):
        scores = self.out(self.gru(self.embedding(source))[0])
        if not TWIN or not self.training:
            self.score = bleu(scores.argmax(2).tolist(), target.tolist())
        return nn.functional.cross_entropy(scores.flatten(0, 1), target.flatten())


model = Translator()
optimizer = torch.optim.Adam(model.parameters(), fused=True)
pairs = TensorDataset(torch.randint(0, 500, (3200, 24)), torch.randint(0, 500, (3200, 24)))
end = time.time() + 12
while time.time() < end:
    for source, target in DataLoader(pairs, batch_size=32, shuffle=True):
        loss = model(source, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if time.time() > end:
            break
print("loss", loss.item(), model.score)
