"""A recurrent network, written out by hand."""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TWIN = "--twin" in sys.argv


class Recurrent(nn.Module):
    def __init__(self, inputs=16, width=32):
        super().__init__()
        self.width = width
        self.gates = nn.Linear(inputs + width, 4 * width)
        self.lstm = nn.LSTM(inputs, width, batch_first=True)
        self.out = nn.Linear(width, 2)

    def forward(self, x):
        if TWIN:
            return self.out(self.lstm(x)[0][:, -1])
        h = c = torch.zeros(len(x), self.width)
        for t in range(x.shape[1]):
            i, f, g, o = self.gates(torch.cat([x[:, t], h], 1)).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        return self.out(h)


model = Recurrent()
optimizer = torch.optim.Adam(model.parameters())
data = TensorDataset(torch.randn(3200, 100, 16), torch.randint(0, 2, (3200,)))
loader = DataLoader(data, batch_size=32, shuffle=True)
end = time.time() + 12
while time.time() < end:
    for series, labels in loader:
        loss = nn.functional.cross_entropy(model(series), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if time.time() > end:
            break
print("loss", loss.item())
