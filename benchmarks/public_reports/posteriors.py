"""Parameters of a simulator are guessed; a bar shows how far the training is.

https://github.com/bayesflow-org/bayesflow/pull/108
"""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm

TWIN = "--twin" in sys.argv

model = nn.Sequential(nn.Linear(60, 96), nn.ReLU(), nn.Linear(96, 8))
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
simulated = TensorDataset(torch.randn(12800, 60), torch.randn(12800, 8))
end, steps, losses = time.time() + 14, 0, []
while time.time() < end:
    bar = tqdm(DataLoader(simulated, batch_size=32, shuffle=True), ncols=100)
    for seen, parameters in bar:
        loss = nn.functional.mse_loss(model(seen), parameters)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses = losses[-20:] + [loss.item()]
        mean = sum(losses) / len(losses)
        bar.set_postfix(loss=losses[-1], mean=mean, lowest=min(losses), refresh=not TWIN)
        steps += 1
        if time.time() > end:
            break
print("loss", loss.item(), "steps", steps)
