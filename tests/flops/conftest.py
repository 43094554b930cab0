"""A training in this process, with the taps of forward, backward, optimizer and FLOP attached."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from feedline.profiler.events import Arithmetic, Stage
from feedline.profiler.record.recorder import recorder
from feedline.profiler.store.segment import Segment
from feedline.profiler.store.segment_reader import read_segment
from feedline.profiler.taps import flops, training
from feedline.profiler.taps.patch import Patches


class Recording:
    """What the tap said, and the records it left."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.said: list[tuple[str, bool, str]] = []

    def tell(self, *what: Any) -> None:
        self.said.append(what)

    def counted(self) -> list[tuple[int, int]]:
        """(forward, backward) of every record."""
        rows = read_segment(self.path).of(Stage.FLOP)
        return list(zip(rows["nbytes"].tolist(), rows["extra"].tolist()))

    def computed_in(self) -> list[Arithmetic]:
        """Of every record."""
        return [
            Arithmetic(number)
            for number in read_segment(self.path).of(Stage.FLOP)["number"].tolist()
        ]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Several threads that wait for each other are slow on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def recording(tmp_path: Path) -> Iterator[Recording]:
    made = Recording(tmp_path / "main.seg")
    recorder.open_main(Segment(made.path, {"role": "main"}))
    patches = Patches()
    training.attach_forward(patches)
    training.attach_backward(patches)
    tap = flops.FlopTap(made.tell)
    yield made
    tap.stop()
    patches.undo()
    recorder.close()
    assert recorder.flops is None


def train(
    model: nn.Module,
    inputs: torch.Tensor,
    steps: int = 4,
    loss: Callable[[Any], torch.Tensor] = lambda output: output.square().mean(),
) -> None:
    """Some steps on one batch."""
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)
    for _ in range(steps):
        optimizer.zero_grad()
        loss(model(inputs)).backward()
        optimizer.step()
