"""A training that is full of its owner's secrets: in what it is given, in its dataset, in what it
raises. $SECRETS: their file.
"""

import importlib
import json
import os
import sys
import warnings
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

SECRETS = json.loads(Path(os.environ["SECRETS"]).read_text())


class Samples(Dataset):
    def __init__(self, password: str, root: str) -> None:
        self.password, self.root = password, root

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.password == "raise" and index == 5:
            raise ValueError(f"cannot log in with {SECRETS['raised in a worker']}")
        return torch.full((8,), float(index))

    def __repr__(self) -> str:
        return f"Samples(password={self.password!r}, root={self.root!r})"


class Guarded(Samples):
    """Raises wherever it is looked at from outside."""

    def __getattr__(self, name: str) -> object:
        if name == "__getitems__":
            raise RuntimeError(f"no {name} for {SECRETS['raised in a hook']}")
        raise AttributeError(name)


class Refusing(torch.optim.SGD):
    """Its groups cannot be described."""

    def state_dict(self) -> dict:
        raise RuntimeError(SECRETS["raised in a hook"])


def train(data: Dataset) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    optimizer = Refusing(model.parameters(), lr=1e-4)
    for batch in DataLoader(data, batch_size=4, num_workers=2):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.path.insert(0, str(Path(__file__).parent))
    importlib.import_module(SECRETS["name of a module"])
    train(Samples(SECRETS["attribute of the dataset"], sys.argv[-1]))
    for failing in (Guarded("", ""), Samples("raise", "")):
        try:
            train(failing)
        except (RuntimeError, ValueError) as error:
            print(type(error).__name__, file=sys.stderr)
    torch.save(
        {"password": SECRETS["attribute of the dataset"]}, Path(os.environ["HOME"]) / "model.pt"
    )
    raise SystemExit(SECRETS["raised by the training"])
