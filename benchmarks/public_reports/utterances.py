"""A speech recogniser, whose batches are of recordings of about the same length."""

import pathlib
import random
import sys
import tempfile
import time

import numpy as np
import soundfile
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TWIN = "--twin" in sys.argv
folder = pathlib.Path(tempfile.mkdtemp())
for number in range(240):
    samples = np.random.randn(random.randrange(8000, 24000)) / 5
    soundfile.write(folder / f"{number}.flac", samples, 16000)


class Utterances(Dataset):
    def __init__(self):
        self.paths = sorted(folder.glob("*.flac"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        samples, _ = soundfile.read(self.paths[index], dtype="float32")
        return torch.from_numpy(samples)


class Buckets:
    def __init__(self, recordings, size):
        self.recordings, self.size = recordings, size
        self.known = self.lengths() if TWIN else None

    def lengths(self):
        return [len(recording) for recording in self.recordings]

    def __len__(self):
        return len(self.recordings) // self.size

    def __iter__(self):
        lengths = self.known or self.lengths()
        order = sorted(range(len(lengths)), key=lengths.__getitem__)
        batches = [order[at : at + self.size] for at in range(0, len(order), self.size)]
        yield from random.sample(batches, len(batches))


def padded(recordings):
    return nn.utils.rnn.pad_sequence(recordings, batch_first=True).unsqueeze(1)


recordings = Utterances()
model = nn.Sequential(nn.Conv1d(1, 32, 400, stride=160), nn.ReLU(), nn.Conv1d(32, 30, 3))
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
loader = DataLoader(recordings, batch_sampler=Buckets(recordings, 8), collate_fn=padded)
end = time.time() + 14
while time.time() < end:
    for batch in loader:
        loss = model(batch).log_softmax(1)[:, 0].mean().neg()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if time.time() > end:
            break
print("loss", loss.item())
