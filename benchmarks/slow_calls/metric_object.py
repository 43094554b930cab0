"""A metric over all predictions is computed in every step. Twin: once at the end."""

import torch
import torchmetrics
from training import TWIN, WIDTH, loader, train

metric = torchmetrics.AUROC(task="multiclass", num_classes=10)


def judge(step, loss, model):
    scores, labels = torch.rand(32, 10), torch.randint(0, 10, (32,))
    metric.update(scores, labels)
    if not TWIN:
        metric.compute()  # SLOW
        metric._computed = None


rows = torch.utils.data.TensorDataset(torch.randn(4000, WIDTH), torch.randint(0, 10, (4000,)))
train(loader(rows), judge)
