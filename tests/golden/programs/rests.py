"""1,500 steps too short to be all recorded in full, from a loader without workers; evaluation and
checkpoint after each of three epochs.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(0)
samples = TensorDataset(torch.randn(2000, 16), torch.randint(4, (2000,)))
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader, held_out = (
    DataLoader(samples, 4, shuffle=True),
    DataLoader(TensorDataset(*samples[:200]), 20),
)
for _ in range(3):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    with torch.no_grad():
        for x, y in held_out:
            nn.functional.cross_entropy(model(x), y)
    torch.save(model.state_dict(), "checkpoint.pt")
