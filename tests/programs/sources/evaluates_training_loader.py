"""After each epoch the accuracy is measured on the training data, through the same loader."""

import torch
from torch.utils.data import DataLoader, TensorDataset


def accuracy(model, loader):
    model.eval()
    right = total = 0
    with torch.no_grad():
        for inputs, targets in loader:
            right += (model(inputs).argmax(1) == targets).sum().item()
            total += len(targets)
    model.train()
    return right / total


if __name__ == "__main__":
    torch.manual_seed(1)
    x = torch.randn(48, 20)
    loader = DataLoader(TensorDataset(x, x[:, :4].argmax(1)), batch_size=8, shuffle=True, num_workers=2)
    model = torch.nn.Sequential(torch.nn.Linear(20, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    criterion = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    print("before", f"{accuracy(model, loader):.4f}")
    for epoch in range(2):
        for inputs, targets in loader:
            optimizer.zero_grad()
            criterion(model(inputs), targets).backward()
            optimizer.step()
        print("epoch", epoch, f"{accuracy(model, loader):.4f}")
