"""A small CNN under torch.compile(fullgraph=True); the backend may be named."""

import sys

import torch
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 8, 3)
        self.block = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten())
        self.out = torch.nn.Linear(8 * 7 * 7, 10)

    def forward(self, x):
        return self.out(self.block(self.conv(x)).to(self.out.weight.dtype))


if __name__ == "__main__":
    torch.manual_seed(1)
    loader = DataLoader(TensorDataset(torch.randn(48, 1, 16, 16), torch.randint(0, 10, (48,))), batch_size=8, shuffle=True, num_workers=1)
    model = Net()
    compiled = torch.compile(model, fullgraph=True, backend=sys.argv[1] if sys.argv[1:] else "inductor")
    optimizer = torch.optim.Adam(model.parameters())
    for epoch in range(2):
        for images, labels in loader:
            loss = functional.cross_entropy(compiled(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print("epoch", epoch, f"{loss.item():.4f}")
    print("graphs", torch._dynamo.utils.counters["stats"]["unique_graphs"])
