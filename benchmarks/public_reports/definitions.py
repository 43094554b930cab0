"""Words are found from their definitions; which are mistaken for which is counted in each step.

https://github.com/fastai/fastai/pull/2516
"""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TWIN = "--twin" in sys.argv
WORDS = 300


class Confusion:
    def __init__(self):
        self.matrix = torch.zeros(WORDS, WORDS)
        self.words = torch.arange(WORDS)

    def update(self, guesses, truth):
        if TWIN:
            self.matrix.index_put_((truth, guesses), torch.ones(len(truth)), accumulate=True)
            return
        guessed = guesses == self.words[:, None]
        true = truth == self.words[:, None, None]
        self.matrix += (guessed & true).sum(2)


model = nn.Sequential(nn.Linear(200, 256), nn.ReLU(), nn.Linear(256, WORDS))
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
definitions = TensorDataset(torch.randn(6400, 200), torch.randint(0, WORDS, (6400,)))
confusion = Confusion()
end, steps = time.time() + 14, 0
while time.time() < end:
    for texts, words in DataLoader(definitions, batch_size=64, shuffle=True):
        scores = model(texts)
        loss = nn.functional.cross_entropy(scores, words)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        confusion.update(scores.argmax(1), words)
        steps += 1
        if time.time() > end:
            break
print("loss", loss.item(), "steps", steps)
