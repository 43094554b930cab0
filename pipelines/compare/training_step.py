"""Cost of a training step of the user's model without waiting for a loader."""

from collections.abc import Callable
from typing import Any

import torch

from feedline.pipelines.compare.result import Compute
from feedline.pipelines.loaders import pillow_v1
from feedline.pipelines.loaders.protocol import Task
from feedline.pipelines.loaders.random_state import OwnRandomState
from feedline.pipelines.probes.measure import Measured, Plan, Refused, Work, in_turns
from feedline.pipelines.probes.training_step import Step
from feedline.profiler.errors import UserCodeError

_PLAN = Plan(rounds=5, seconds=0.5)


def prepared(model: Any, task: Task) -> Callable[[], Compute]:
    """Try one step on a batch of the user's images; returns a function that measures it later.

    Raises:
        UserCodeError: the model cannot be trained on such a batch.
    """
    samples, _ = pillow_v1.steps(task)
    with OwnRandomState(0):
        size = min(task.settings.batch_size, len(samples))
        batch = torch.stack([samples[index][0] for index in range(size)])
        try:
            step = Step.of(model, batch, task.settings.device)
        except Refused as error:
            raise UserCodeError(f"{error}") from error
    return lambda: measured(step)


def measured(step: Step) -> Compute:
    """Run the step for some seconds.

    Raises:
        UserCodeError: it fails.
    """
    with OwnRandomState(0):
        found = in_turns({"model": Work(step.whole)}, _PLAN)["model"]
    if not isinstance(found, Measured):
        raise UserCodeError(f"the model's training step fails: {found}")
    return Compute(1 / found.value, found.cpu_s)
