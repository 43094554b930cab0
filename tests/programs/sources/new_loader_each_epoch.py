"""A loop that makes its loaders anew in each epoch."""

import torch
from torch.utils.data import DataLoader, TensorDataset


def run_epoch(model, criterion, dataset, optimizer=None):
    model.train(optimizer is not None)
    total = 0.0
    for inputs, targets in DataLoader(dataset, batch_size=8, shuffle=optimizer is not None, num_workers=2):
        loss = criterion(model(inputs), targets)  # with gradients in evaluation too: someone forgot no_grad
        if optimizer is not None:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        total += loss.item()
    return total


if __name__ == "__main__":
    torch.manual_seed(1)
    x = torch.randn(64, 8)
    train, validation = TensorDataset(x[:48], x[:48].sum(1, keepdim=True)), TensorDataset(x[48:], x[48:].sum(1, keepdim=True))
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(3):
        loss = run_epoch(model, torch.nn.MSELoss(), train, optimizer)
        print("epoch", epoch, f"{loss:.4f} {run_epoch(model, torch.nn.MSELoss(), validation):.4f}")
