"""The next picture of moving sprites is predicted, and shown now and then."""

import pathlib
import sys
import tempfile
import time
import warnings

import matplotlib
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

warnings.filterwarnings("ignore")
TWIN = "--twin" in sys.argv
folder = pathlib.Path(tempfile.mkdtemp())


def show(step, seen, guess):
    figure, axes = pyplot.subplots(1, 4)
    for axis, picture in zip(axes, [*seen[:2], *guess[:2]]):
        axis.imshow(picture.detach().view(32, 32))
        axis.axis("off")
    figure.savefig(folder / f"{step % 10}.png")
    if TWIN:
        pyplot.close(figure)


model = nn.Sequential(nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 1024))
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
pictures = TensorDataset(torch.rand(4000, 1024), torch.rand(4000, 1024))
end, step = time.time() + 30, 0
while time.time() < end:
    for before, after in DataLoader(pictures, batch_size=64, shuffle=True):
        guess = model(before)
        loss = nn.functional.mse_loss(guess, after)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % 20 == 0:
            show(step, before, guess)
        if time.time() > end:
            break
print("loss", loss.item())
