"""A batch sampler whose batch grows from epoch to epoch and that can be resumed.

Smith et al. 2017, arXiv 1711.00489.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import Sampler

from feedline.convergence.fix import Fix

__all__ = ["FIX", "GrowingBatchSampler", "SamplesSchedule", "growth_stages"]


_VALUE = "32:6=128:9=512 (samples per rank: at first, from epoch 6 and from epoch 9)"


def growth_stages(batch: int, milestones: Sequence[int], gamma: float) -> list[tuple[int, int]]:
    """Return the stages that replace ``MultiStepLR(milestones, gamma)``.

    At each milestone the batch grows by ``1 / gamma``.

    Args:
        batch: samples at the start.
        milestones: epochs, ascending.
        gamma: what the rate would be multiplied by, above 0 and at most 1.

    Returns:
        (first epoch, batch), as `GrowingBatchSampler` takes them.

    Raises:
        ValueError: a gamma outside.
    """
    if not 0 < gamma <= 1:
        raise ValueError(f"gamma must be above 0 and at most 1, not {gamma}")
    return [
        (0, batch),
        *((epoch, round(batch / gamma**number)) for number, epoch in enumerate(milestones, 1)),
    ]


class GrowingBatchSampler(Sampler[list[int]]):
    """A batch sampler whose batch depends on the epoch.

    ::

        sampler = GrowingBatchSampler(DistributedSampler(data), stages=[(0, 32), (6, 128)])
        loader = DataLoader(data, batch_sampler=sampler, num_workers=4)
        for epoch in range(sampler.epoch, 12):
            sampler.set_epoch(epoch)
            for images, labels in loader:
                ...
                sampler.count(len(images))

    Workers fetch batches before the training asks for them, so the sampler cannot know which the
    training has had: `count` says it, and only with it can a checkpoint in mid-epoch be resumed, on
    any number of workers. If the sampler inside has ``set_epoch`` (DistributedSampler), its order
    is made again from the epoch; of any other the order itself goes into the state, 8 bytes a
    sample.

    Args:
        sampler: of indices; on several ranks a DistributedSampler.
        stages: (first epoch, batch of this rank in samples), from epoch 0, ascending.
        drop_last: leave out a last batch that is smaller.

    Raises:
        ValueError: stages that are none.
    """

    def __init__(
        self, sampler: Iterable[int], stages: Sequence[tuple[int, int]], drop_last: bool = False
    ) -> None:
        """Check the stages, and begin with epoch 0."""
        epochs = [epoch for epoch, _ in stages]
        if (
            not stages
            or epochs[0] != 0
            or epochs != sorted(set(epochs))
            or any(batch < 1 for _, batch in stages)
        ):
            raise ValueError(
                f"stages must be (first epoch, batch) pairs: epochs ascending from 0, batches of "
                f"at least 1; not {stages}"
            )
        self.sampler, self.stages, self.drop_last = sampler, list(stages), drop_last
        self.epoch, self.taken = 0, 0
        self._from = 0  # samples that were taken when this epoch was begun or resumed
        self._order: list[int] | None = None  # of this epoch, once it was drawn
        self._begun = False

    @property
    def batch(self) -> int:
        """Samples of a full batch in this epoch."""
        return next(batch for epoch, batch in reversed(self.stages) if epoch <= self.epoch)

    def set_epoch(self, epoch: int) -> None:
        """Set the next epoch; needed before each one. A resumed epoch continues where it was."""
        if epoch != self.epoch or self._begun:
            self.taken, self._order = 0, None
        self.epoch, self._begun = epoch, False

    def count(self, samples: int) -> None:
        """Count samples of this rank that the training has used."""
        self.taken += samples

    def __len__(self) -> int:
        """Return the number of batches in this iteration, or in the next if none has begun."""
        taken = self._from if self._begun else self.taken
        left = max(0, len(self.sampler) - taken)  # type: ignore[arg-type]
        return left // self.batch if self.drop_last else math.ceil(left / self.batch)

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the remaining batches of this epoch.

        Raises:
            ValueError: the epoch was begun before; without set_epoch the batch would never grow.
        """
        if self._begun:
            raise ValueError(
                f"epoch {self.epoch} has already started: call sampler.set_epoch(epoch) before "
                f"each, or the batch never grows"
            )
        self._begun, self._from = True, self.taken
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(self.epoch)
            self._order = None
        if self._order is None:
            self._order = list(self.sampler)
        indices, batch = self._order[self.taken :], self.batch
        for start in range(0, len(indices), batch):
            indices_of_batch = indices[start : start + batch]
            if len(indices_of_batch) == batch or not self.drop_last:
                yield indices_of_batch

    def state_dict(self) -> dict[str, Any]:
        """Return the epoch, its counted samples, and what reproduces the order.

        That is the order itself, and the generator for the next one.

        Raises:
            ValueError: the epoch was begun and nothing counted, so its position is unknown.
        """
        if self._begun and not self.taken:
            raise ValueError(
                f"epoch {self.epoch} has started, but no samples were counted: call "
                f"sampler.count(len(inputs)) after each batch"
            )
        kept = self._order is not None and not hasattr(self.sampler, "set_epoch")
        generator = getattr(self.sampler, "generator", None)
        return {
            "epoch": self.epoch,
            "taken": self.taken,
            "order": torch.tensor(self._order) if kept else None,
            "generator": None if generator is None else generator.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        self.epoch, self.taken, self._begun = int(state["epoch"]), int(state["taken"]), False
        self._order = None if state["order"] is None else state["order"].tolist()
        if state["generator"] is not None:
            self.sampler.generator.set_state(state["generator"])  # type: ignore[attr-defined]


class SamplesSchedule(LRScheduler):
    """Multiplies the rate of each group by a function of the samples seen.

    torch's schedules count steps. When the batch changes in the middle of a training, a schedule in
    steps is over too late or too early; this one is not::

        schedule = SamplesSchedule(optimizer, lambda samples: 0.5 * (1 + math.cos(math.pi * samples / (12 * len(data)))))
        ...
        optimizer.step()
        schedule.step(len(images) * ranks)

    Args:
        factor: of samples of all ranks together; 1 is the rate that the optimizer was made with.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, factor: Callable[[int], float]) -> None:
        """Begin with no samples."""
        self.factor, self.samples = factor, 0
        super().__init__(optimizer)

    def get_lr(self) -> list[Any]:
        """Return the rate of each group."""
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
        """Return the state without the optimizer and the function.

        The program creates these again.
        """
        return {key: value for key, value in super().state_dict().items() if key != "factor"}


@dataclass(frozen=True)
class _GrowthSetting:
    """Stages: (first epoch, samples)."""

    stages: tuple[tuple[int, int], ...]


def _parse(text: str) -> _GrowthSetting:
    parts = [part.partition("=") for part in f"0={text.strip()}".split(":")]
    try:
        stages = tuple((int(epoch), int(batch)) for epoch, _, batch in parts)
    except ValueError:
        stages = ()
    epochs = [epoch for epoch, _ in stages]
    if not stages or epochs != sorted(set(epochs)) or min(batch for _, batch in stages) < 1:
        raise ValueError(f"{text!r} is not a batch schedule: expected {_VALUE}")
    return _GrowthSetting(stages)


def _lines(setting: _GrowthSetting) -> str:
    return (
        "from feedline.convergence.fixes.batch_growth import GrowingBatchSampler, "
        "SamplesSchedule\n\n"
        f"sampler = GrowingBatchSampler(sampler, stages={list(setting.stages)})  # of a "
        f"DistributedSampler on several ranks\n"
        "loader = DataLoader(data, batch_sampler=sampler)\n"
        "schedule = SamplesSchedule(optimizer, factor_of_samples)  # in place of a scheduler that "
        "counts steps\n"
        "# before each epoch:\n"
        "sampler.set_epoch(epoch)\n"
        "# after each optimizer.step():\n"
        "sampler.count(len(inputs))\n"
        "schedule.step(len(inputs))  # times the number of ranks"
    )


FIX = Fix(
    name="batch_growth",
    value=_VALUE,
    summary="a batch that grows where the rate would decay: the same noise in fewer updates",
    parse=_parse,
    lines=_lines,
)
