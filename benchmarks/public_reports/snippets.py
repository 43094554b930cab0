"""Names of functions are guessed from their code; a metric follows what the model learns.

https://github.com/JetBrains-Research/code2seq/pull/112
"""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.regression import SpearmanCorrCoef

TWIN = "--twin" in sys.argv
AFTER = "reset" if TWIN else "eval"  # by its name: the report reads which lines reset a metric

model = nn.Sequential(nn.Linear(120, 128), nn.ReLU(), nn.Linear(128, 1))
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
snippets = TensorDataset(torch.randn(51200, 120), torch.randn(51200))
metric = SpearmanCorrCoef()
end, epoch = time.time() + 25, 0
while time.time() < end:
    for code, likeness in DataLoader(snippets, batch_size=512, shuffle=True):
        guess = model(code)[:, 0]
        loss = nn.functional.mse_loss(guess, likeness)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        metric.update(guess.detach(), likeness)
        if time.time() > end:
            break
    if epoch % 20 == 0:
        print("epoch", epoch, "order", metric.compute().item())
    getattr(metric, AFTER)()
    epoch += 1
print("loss", loss.item())
