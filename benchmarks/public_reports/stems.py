"""Reviews are rated from the stems of their words.

https://github.com/biolab/orange3-text/pull/709
"""

import functools
import random
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TWIN = "--twin" in sys.argv
ENDINGS = ("ational", "ization", "fulness", "iveness", "ement", "ing", "ies", "ed", "ly", "s", "e")


def stem(word):
    """A word without its endings."""
    word = word.lower()
    changed = True
    while changed and len(word) > 3:
        changed = False
        for ending in ENDINGS:
            if word.endswith(ending) and any(letter in "aeiouy" for letter in word[: -len(ending)]):
                word = word[: -len(ending)]
                changed = True
    return word


if TWIN:
    stem = functools.lru_cache(maxsize=None)(stem)


class Reviews(Dataset):
    def __init__(self):
        sounds = ["ban", "dor", "lim", "tep", "rust", "gal", "min", "cor"]
        words = [
            "".join(random.choices(sounds, k=2)) + random.choice(ENDINGS) + random.choice(ENDINGS)
            for _ in range(1500)
        ]
        self.texts = [" ".join(random.choices(words, k=100)) for _ in range(2000)]
        self.numbers = {}

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        stems = [stem(word) for word in self.texts[index].split()]
        numbers = [self.numbers.setdefault(one, len(self.numbers) % 500) for one in stems]
        return torch.tensor(numbers), index % 5


model = nn.Sequential(nn.EmbeddingBag(500, 64), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 5))
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
end = time.time() + 20
loader = DataLoader(Reviews(), batch_size=32, shuffle=True, num_workers=1, persistent_workers=True)
while time.time() < end:
    for words, ratings in loader:
        loss = nn.functional.cross_entropy(model(words), ratings)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if time.time() > end:
            break
print("loss", loss.item())
