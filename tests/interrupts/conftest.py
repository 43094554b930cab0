"""A folder of the user's with something for every command."""

from pathlib import Path

import pytest
from interrupts.terminal import Terminal
from planted import photos
from traces.kineto_made import kineto

TRAINING = """
import sys, time
import torch
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, index):
        time.sleep(0.002)
        return torch.randn(4)


if __name__ == "__main__":
    torch.manual_seed(int(sys.argv[1]))
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(2):
        for x in DataLoader(Numbers(), batch_size=8, num_workers=1):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
            optimizer.step()
    open(f"trained-{sys.argv[1]}", "a").write("again\\n")
"""


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    for name in ("cat", "dog"):
        photos.write(tmp_path / "photos" / name, 160, 120, 30)
    return tmp_path / "photos"


@pytest.fixture
def traces(tmp_path: Path) -> list[str]:
    return [
        Path(kineto(tmp_path / f"rank{rank}.json.gz", rank=rank, late_us=2000 * rank)).name
        for rank in range(3)
    ]


@pytest.fixture
def training(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAINING)
    return tmp_path / "train.py"


@pytest.fixture
def recorded(terminal: Terminal, training: Path) -> str:
    """A run folder."""
    done = terminal.run("run", "-q", "-o", "run", "train.py", "0")
    assert done.code == 0, done.err
    return "run"
