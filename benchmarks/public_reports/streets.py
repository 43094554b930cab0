"""Scenes of streets come from a program of their own that writes frames to its output.

https://github.com/dgrauet/ltx-2-mlx/issues/92
"""

import subprocess
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TWIN = "--twin" in sys.argv
FRAMES = "import os, sys; sys.stdout.buffer.write(os.urandom(int(sys.argv[1])))"


class Streets(Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, index):
        size = 100_000 if index == 200 else 20_000
        decoder = subprocess.Popen(
            [sys.executable, "-S", "-c", FRAMES, str(size)], stdout=subprocess.PIPE
        )
        if TWIN:
            frames, _ = decoder.communicate()
        else:
            decoder.wait()
            frames = decoder.stdout.read()
            decoder.stdout.close()
        pixels = torch.frombuffer(bytearray(frames[:3072]), dtype=torch.uint8)
        return pixels.float() / 255, index % 5


model = nn.Sequential(nn.Linear(3072, 64), nn.ReLU(), nn.Linear(64, 5))
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
for pixels, labels in DataLoader(Streets(), batch_size=8, num_workers=1):
    loss = nn.functional.cross_entropy(model(pixels), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss", loss.item())
