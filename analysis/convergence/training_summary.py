"""A run's convergence, as its report tells it."""

from feedline.analysis.convergence import batch_cost, checks, noise_windows
from feedline.analysis.convergence.batch_cost import DOUBT
from feedline.analysis.convergence.curves import thin
from feedline.analysis.convergence.training_record import TrainingRecord
from feedline.analysis.convergence.training_series import ConvergenceSummary

#: First in a report; the others by name.
_CURVE_ORDER = ("train loss", "eval loss", "lr")


def summarise(recorded: TrainingRecord) -> ConvergenceSummary:
    """Return all that one run tells by itself."""
    names = [name for name in _CURVE_ORDER if name in recorded.curves]
    names += sorted(set(recorded.curves) - set(names))
    findings = checks.run_checks(recorded)
    scale = noise_windows.unless_spoiled(recorded, findings)
    priced = batch_cost.price(scale, recorded.batch) if recorded.batch else None
    notes = list(recorded.notes)
    if priced is None:
        notes.append("the cost of the batch size is unknown: samples per update were not recorded")
    elif scale.value is not None:
        notes.append(DOUBT)
    return ConvergenceSummary(
        [thin(name, recorded.curves[name]) for name in names],
        scale,
        priced,
        [],
        findings,
        recorded.samples if recorded.samples_known else None,
        recorded.samples_per_epoch if recorded.samples_known else None,
        recorded.updates,
        recorded.fixes,
        notes,
    )
