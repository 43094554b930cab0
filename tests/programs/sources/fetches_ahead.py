"""A loop with gradient accumulation whose loader is one batch ahead, as accelerate's is. It ends in the middle of a step."""

import torch
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset


def ahead(loader):
    """The loader's batches, each after the next was taken."""
    kept = None
    for batch in loader:
        if kept is not None:
            yield kept
        kept = batch
    yield kept


if __name__ == "__main__":
    torch.manual_seed(1)
    loader = DataLoader(TensorDataset(torch.randn(160, 32), torch.randint(0, 10, (160,))), batch_size=8, num_workers=1)
    model = torch.nn.Linear(32, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch, (inputs, labels) in enumerate(ahead(loader), 1):
        functional.cross_entropy(model(inputs), labels).backward()
        if batch % 2 == 0:
            optimizer.step()
            optimizer.zero_grad()
        if batch == 17:
            break
