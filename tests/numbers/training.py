"""50 steps of a training that uses every random state there is:

``training.py METHOD WORKERS COMPILED``; prints a digest of all of it.
"""

import hashlib
import random
import sys

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Noise(Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, index):
        return torch.randn(3, 8, 8) + np.random.rand() + random.random(), index % 4, index


def main():
    method, workers, compiled = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "compiled"
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Flatten(),
        nn.Linear(8 * 36, 4),
    )
    run = torch.compile(model, fullgraph=True, backend="aot_eager") if compiled else model
    optimizer, criterion = torch.optim.Adam(model.parameters()), nn.CrossEntropyLoss()
    options = (
        {"multiprocessing_context": method, "persistent_workers": method != "fork"}
        if workers
        else {}
    )
    loader = DataLoader(Noise(), 16, shuffle=True, num_workers=workers, **options)
    losses, order = [], []
    for _ in range(2):
        for images, labels, indices in loader:
            optimizer.zero_grad()
            loss = criterion(run(images), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            order += indices.tolist()
    digest = hashlib.sha256()
    for tensor in [
        *model.state_dict().values(),
        *(s for state in optimizer.state.values() for s in state.values()),
    ]:
        digest.update(tensor.numpy().tobytes())
    for state in (
        losses,
        order,
        torch.get_rng_state().tolist(),
        random.getstate(),
        np.random.get_state()[1].tolist(),
    ):
        digest.update(repr(state).encode())
    print(len(losses), digest.hexdigest())


if __name__ == "__main__":
    main()
