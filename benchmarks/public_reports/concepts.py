"""A concept bottleneck: one loss for each concept."""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TWIN = "--twin" in sys.argv
CONCEPTS = 112


class ConceptLoss(nn.Module):
    def __init__(self, weights):
        super().__init__()
        self.weights = weights

    def forward(self, predicted, target):
        if TWIN:
            each = nn.functional.binary_cross_entropy(predicted, target, reduction="none")
            return (each.mean(0) * self.weights).sum()
        total = 0
        for k in range(predicted.shape[1]):
            one = nn.functional.binary_cross_entropy(predicted[:, k], target[:, k])
            total = total + one * self.weights[k]
        return total


model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, CONCEPTS), nn.Sigmoid())
criterion = ConceptLoss(torch.ones(CONCEPTS) / CONCEPTS)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
data = TensorDataset(torch.randn(6400, 256), torch.randint(0, 2, (6400, CONCEPTS)).float())
loader = DataLoader(data, batch_size=64, shuffle=True)
end = time.time() + 12
while time.time() < end:
    for inputs, target in loader:
        loss = criterion(model(inputs), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if time.time() > end:
            break
print("loss", loss.item())
