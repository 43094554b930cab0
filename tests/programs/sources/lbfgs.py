"""A regression by LBFGS, whose step calls a closure several times."""

import torch
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    torch.manual_seed(1)
    x = torch.randn(64, 8)
    loader = DataLoader(TensorDataset(x, x.sin().sum(1, keepdim=True)), batch_size=32, num_workers=1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)
    for epoch in range(3):
        for inputs, targets in loader:

            def closure():
                optimizer.zero_grad()
                loss = torch.nn.functional.mse_loss(model(inputs), targets)
                loss.backward()
                return loss

            loss = optimizer.step(closure)
        print("epoch", epoch, f"{loss.item():.4f}")
