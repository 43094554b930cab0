"""Small trainings, of which programs make several: a sweep, folds, an ensemble, a warm-up."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

FEATURES = 16


def data(samples):
    generator = torch.Generator().manual_seed(samples)
    return TensorDataset(
        torch.randn(samples, FEATURES, generator=generator),
        torch.randint(3, (samples,), generator=generator),
    )


def net():
    return nn.Sequential(nn.Linear(FEATURES, 32), nn.ReLU(), nn.Linear(32, 3))


def update(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss


def fit(model, optimizer, loader, epochs=1):
    model.train()
    for _ in range(epochs):
        for x, y in loader:
            loss = update(model, optimizer, x, y)
    return loss.item()


def evaluate(model, loader):
    model.eval()
    with torch.no_grad():
        return sum(nn.functional.cross_entropy(model(x), y).item() for x, y in loader)


def job(lr, samples, epochs=2, workers=0):
    """What a sweep runs again and again, everything of its own."""
    model, loader = (
        net(),
        DataLoader(data(samples), batch_size=8, shuffle=True, num_workers=workers),
    )
    loss = fit(model, torch.optim.SGD(model.parameters(), lr=lr), loader, epochs)
    evaluate(model, DataLoader(data(samples), batch_size=16))
    return loss


def folds(count=5, samples=100, epochs=2):
    """Cross-validation as with sklearn's KFold."""
    whole, indices = data(samples), range(samples)
    for fold in range(count):
        train = Subset(whole, [index for index in indices if index % count != fold])
        held_out = Subset(whole, [index for index in indices if index % count == fold])
        model = net()
        fit(
            model,
            torch.optim.Adam(model.parameters()),
            DataLoader(train, batch_size=8, shuffle=True),
            epochs,
        )
        evaluate(model, DataLoader(held_out, batch_size=10))
