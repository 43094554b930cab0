"""A test for an illness; how well it ranks patients is shown while it is trained."""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import BinaryAUROC

TWIN = "--twin" in sys.argv

model = nn.Sequential(
    nn.Linear(60, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1)
)
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
patients = TensorDataset(torch.randn(20000, 60), torch.randint(0, 2, (20000,)))
metric = BinaryAUROC()
area = 0.0
end = time.time() + 12
while time.time() < end:
    for features, ill in DataLoader(patients, batch_size=64, shuffle=True):
        scores = model(features).squeeze(1)
        loss = nn.functional.binary_cross_entropy_with_logits(scores, ill.float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        metric.update(scores.detach(), ill)
        if not TWIN:
            area = metric.compute().item()
        if time.time() > end:
            break
    area = metric.compute().item()
    metric.reset()
print("loss", loss.item(), "area", area)
