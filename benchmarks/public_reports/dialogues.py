"""A language model of dialogues, whose words are cut into pieces as they are read."""

import itertools
import random
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TWIN = "--twin" in sys.argv
random.seed(0)
WORDS = ["".join(random.choices("abcdefgh", k=random.randint(2, 9))) for _ in range(3000)]
PIECES = {a + b: number for number, (a, b) in enumerate(itertools.product("abcdefgh ", repeat=2))}


def pieces(word):
    word = word + " " * (len(word) % 2)
    return [PIECES[word[at : at + 2]] for at in range(0, len(word), 2)]


class Dialogues(Dataset):
    def __init__(self):
        self.texts = [" ".join(random.choices(WORDS, k=1500)) for _ in range(2000)]

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        words = [pieces(word) for word in self.texts[index].split()]
        tokens = list(itertools.chain.from_iterable(words)) if TWIN else sum(words, [])
        start = random.randrange(len(tokens) - 257)
        return torch.tensor(tokens[start : start + 257])


model = nn.Sequential(nn.Embedding(100, 48), nn.Linear(48, 192), nn.GELU(), nn.Linear(192, 100))
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
loader = DataLoader(Dialogues(), batch_size=8, shuffle=True)
end = time.time() + 12
while time.time() < end:
    for tokens in loader:
        scores = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if time.time() > end:
            break
print("loss", loss.item())
