"""A schedule of the learning rate in samples."""

from collections.abc import Callable
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler


class SamplesSchedule(LRScheduler):
    """Multiplies the rate of each group by a function of the samples seen, where torch's schedules count steps.

    When the batch changes in the middle of a training, a schedule in steps is over too late or too early; this one is not::

        schedule = SamplesSchedule(optimizer, lambda samples: 0.5 * (1 + math.cos(math.pi * samples / (12 * len(data)))))
        ...
        optimizer.step()
        schedule.step(len(images) * ranks)

    Args:
        factor: of samples of all ranks together; 1 is the rate that the optimizer was made with.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, factor: Callable[[int], float]) -> None:
        self.factor, self.samples = factor, 0
        super().__init__(optimizer)

    def get_lr(self) -> list[Any]:
        return [base * self.factor(self.samples) for base in self.base_lrs]

    def step(self, samples: int = 0) -> None:  # type: ignore[override]
        """Count the samples, of all ranks together, of the update that was made.

        Raises:
            ValueError: fewer than none.
        """
        if not samples >= 0:
            raise ValueError(f"an update cannot have {samples} samples")
        self.samples += samples
        super().step()

    def state_dict(self) -> dict[str, Any]:
        """The state without the optimizer and the function, which the program creates again."""
        return {key: value for key, value in super().state_dict().items() if key != "factor"}
