"""A classifier that learns, by gradient accumulation over four micro-batches: curves of loss, rate
and norms, and the noise scale.

convergence.py BATCH
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, MICRO = 4, 4

torch.set_num_threads(1)
torch.manual_seed(0)
batch = int(sys.argv[1])
labels = torch.randint(3, (1280,))
centers = torch.randn(3, 32)
train = TensorDataset(centers[labels] + 2 * torch.randn(1280, 32), labels)
held_out = TensorDataset(*train[:128])
model = nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * len(train) // batch)
for _ in range(EPOCHS):
    model.train()
    for number, (x, y) in enumerate(DataLoader(train, batch // MICRO, shuffle=True), 1):
        (nn.functional.cross_entropy(model(x), y) / MICRO).backward()
        if number % MICRO == 0:
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        for x, y in DataLoader(held_out, 64):
            nn.functional.cross_entropy(model(x), y)
