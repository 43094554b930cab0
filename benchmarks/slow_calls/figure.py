"""A figure is saved every five steps. Twin: never."""

import io

import matplotlib
import torch
from training import TWIN, WIDTH, loader, train

matplotlib.use("agg")
from matplotlib import pyplot  # noqa: E402

losses = []


def draw(step, loss, model):
    losses.append(loss.item())
    if step % 5 == 0 and not TWIN:
        pyplot.figure(figsize=(3, 2))
        pyplot.plot(losses)
        pyplot.savefig(io.BytesIO())  # SLOW
        pyplot.close()


rows = torch.utils.data.TensorDataset(torch.randn(4000, WIDTH), torch.randint(0, 10, (4000,)))
train(loader(rows), draw)
