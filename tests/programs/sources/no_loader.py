"""A regression on tensors that fit into memory, without a loader."""

import torch

if __name__ == "__main__":
    torch.manual_seed(1)
    x = torch.randn(256, 16)
    y = x.sin().sum(1, keepdim=True)
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(20):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
    print(f"{loss.item():.4f}")
