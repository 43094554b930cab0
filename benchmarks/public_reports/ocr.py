"""A text recognizer; the training was written for two precisions."""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TWIN = "--twin" in sys.argv


class Recognizer(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d((8, 1)),
        )  # fmt: skip
        self.out = nn.Linear(64, 40)

    def forward(self, images, targets):
        hidden = self.layers(images).flatten(1, 2).transpose(1, 2)
        scores = self.out(hidden)
        return {"loss": nn.functional.cross_entropy(scores.flatten(0, 1), targets.flatten())}


def fit_epoch(model, loader, optimizer, end):
    for images, targets in loader:
        if not TWIN:
            train_loss = model(images, targets)["loss"]
        optimizer.zero_grad()
        train_loss = model(images, targets)["loss"]
        train_loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5)
        optimizer.step()
        if time.time() > end:
            break
    return train_loss.item()


images, targets = torch.randn(640, 1, 32, 96), torch.randint(0, 40, (640, 48))
loader = DataLoader(TensorDataset(images, targets), batch_size=16, shuffle=True)
model = Recognizer()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
end = time.time() + 12
while time.time() < end:
    loss = fit_epoch(model, loader, optimizer, end)
print("loss", loss)
