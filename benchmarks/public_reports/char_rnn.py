"""Next character with a GRU that keeps its state from batch to batch."""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TWIN = "--twin" in sys.argv
text = torch.randint(0, 60, (8000, 33))
loader = DataLoader(TensorDataset(text), batch_size=16, shuffle=False, drop_last=True)


class CharRNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(60, 32)
        self.gru = nn.GRU(32, 64, batch_first=True)
        self.out = nn.Linear(64, 60)
        self.hidden = torch.zeros(1, 16, 64)

    def forward(self, x):
        state = self.hidden.detach() if TWIN else self.hidden
        y, self.hidden = self.gru(self.embed(x), state)
        return self.out(y)


model = CharRNN()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
end = time.time() + 14
step = 0
for (chars,) in loader:
    logits = model(chars[:, :-1])
    loss = nn.functional.cross_entropy(logits.reshape(-1, 60), chars[:, 1:].reshape(-1))
    optimizer.zero_grad()
    with torch.autograd._unsafe_preserve_version_counter(tuple(model.parameters())):
        loss.backward(retain_graph=True)
        optimizer.step()
    step += 1
    if time.time() > end:
        break
print(step, "steps, loss", loss.item())
