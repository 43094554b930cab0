"""A run's convergence, as its report tells it."""

from collections.abc import Sequence
from dataclasses import replace

from feedline.analysis.convergence import batch_cost, checks, noise
from feedline.analysis.convergence.batch_says import DOUBT
from feedline.analysis.convergence.curves import thin
from feedline.analysis.convergence.model import ConvergenceSummary
from feedline.analysis.convergence.recorded import Recorded
from feedline.analysis.convergence.target import Reached, StepTime, time_to_target

#: First in a report; the others by name.
ORDER = ("train loss", "eval loss", "lr")


def summarise(recorded: Recorded, scaling: Sequence[StepTime] | None = None) -> ConvergenceSummary:
    """All that one run tells by itself.

    Args:
        scaling: time of an update by number of workers, each with the batch per worker that this run had; measured or predicted.
    """
    names = [name for name in ORDER if name in recorded.curves]
    names += sorted(set(recorded.curves) - set(names))
    found = checks.run_checks(recorded)
    over = noise.over_training(recorded)
    if rule_id := next((one.rule_id for one in found if one.rule_id in checks.OF_GRADIENTS), None):
        why = f"the gradients are not a mean over distinct samples ({rule_id})"
        over = replace(over, value=None, low=None, high=None, windows=[], why=why)
    priced = batch_cost.price(over, recorded.batch) if recorded.batch else None
    notes = list(recorded.notes)
    if priced is None:
        notes.append("the cost of the batch size is unknown: samples per update were not recorded")
    elif over.value is not None:
        notes.append(DOUBT)
    return ConvergenceSummary(
        [thin(name, recorded.curves[name]) for name in names],
        over,
        priced,
        [time_to_target(_end(recorded), recorded.batch, _batch(recorded, one), over, one) for one in scaling or [] if recorded.batch],
        found,
        recorded.samples if recorded.samples_known else None,
        recorded.samples_per_epoch if recorded.samples_known else None,
        recorded.updates,
        recorded.fixes,
        notes,
    )


def _end(recorded: Recorded) -> Reached:
    """What the run came to in the end, as a target."""
    ended = float(recorded.updates)
    return Reached(ended, recorded.samples, ended * (recorded.step_s or 0.0), ended, ended)


def _batch(recorded: Recorded, step: StepTime) -> float:
    return (recorded.batch or 0.0) / recorded.ranks * step.workers
