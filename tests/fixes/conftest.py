"""A training as a fix sees it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from feedline.convergence.fix import TrainingProgress


class Seen:
    """Keeps what a fix wants of a training (feedline.convergence.fix.TrainingHooks)."""

    def __init__(self) -> None:
        self.ranks = 1
        self.acts: dict[str, Callable[..., Any]] = {}

    def optimizer(self, make: Callable[..., torch.optim.Optimizer]) -> None:
        self.acts["optimizer"] = make

    def rate(self, factor: Callable[[TrainingProgress], float]) -> None:
        self.acts["rate"] = factor

    def model(self, act: Callable[[torch.nn.Module], None]) -> None:
        self.acts["model"] = act

    def output(self, act: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self.acts["output"] = act


@pytest.fixture
def training() -> Seen:
    return Seen()


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tensors here are tiny, and the machine is shared."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
