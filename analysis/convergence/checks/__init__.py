"""The checks of how a training was made, before its batch size is judged.

There is one small function per mistake; ``CHECKS`` lists them.
"""

from collections.abc import Callable, Sequence

from feedline.analysis.convergence.checks.of_setup import (
    few_samples,
    layerwise_without_decay,
    missing_set_epoch,
    rate_at_top,
    rate_outside_momentum,
    schedule_in_steps,
    sync_batch_norm,
    whole_data,
)
from feedline.analysis.convergence.checks.of_updates import (
    exploded,
    not_finite,
    same_data,
    skipped_steps,
    sum_not_mean,
)
from feedline.analysis.convergence.training_record import TrainingRecord
from feedline.analysis.ledger.finding import Finding, Severity

_Check = Callable[[TrainingRecord], Finding | None]
#: Causes that make every other figure say something about the mistake instead of the training.
STOPS = frozenset(
    [
        "same_data",
        "sum_not_mean",
        "schedule_in_steps",
        "missing_set_epoch",
        "whole_data_on_every_rank",
        "layerwise_without_decay",
        "few_samples_in_batch_norm",
    ]
)
#: After which the noise scale says nothing: it is made of the same gradients.
_GRADIENT_CHECKS = frozenset(["same_data", "sum_not_mean"])
#: Why it then says nothing; batch norm over a few samples adds to the noise.
WITHOUT_NOISE_SCALE = {
    **{
        rule_id: f"the gradients are not a mean over distinct samples ({rule_id})"
        for rule_id in sorted(_GRADIENT_CHECKS)
    },
    "few_samples_in_batch_norm": "batch norm over a few samples adds noise of its own to the "
    "gradients (few_samples_in_batch_norm)",
    "loss_exploded": "the training diverged (loss_exploded)",
}
#: The training has diverged: going on cannot repair it.
DIVERGED = ("not_finite", "loss_exploded")
#: The training is another than it was meant to be: that is to be heard before anything about how
#: fast it is.
GRAVE = frozenset([*_GRADIENT_CHECKS, "whole_data_on_every_rank", *DIVERGED])
#: Told among the findings, but no answer to what holds the run back: a run that is only measured
#: ends before its schedule.
ASIDE = ("schedule_in_steps", "skipped_steps")
#: A check -> the finding that says more where both are there: one sampler repairs both.
COVERED_BY = {"whole_data_on_every_rank": "same_data"}

#: In the order in which findings of one severity are shown.
CHECKS: list[_Check] = [
    same_data,
    sum_not_mean,
    whole_data,
    schedule_in_steps,
    missing_set_epoch,
    layerwise_without_decay,
    few_samples,
    not_finite,
    exploded,
    skipped_steps,
    rate_outside_momentum,
    sync_batch_norm,
    rate_at_top,
]

#: What the fix of a check does, in a few words.
ACTIONS = {
    "same_data": "use DistributedSampler",
    "sum_not_mean": "average gradients",
    "whole_data_on_every_rank": "use DistributedSampler",
    "schedule_in_steps": "set the schedule's length",
    "missing_set_epoch": "call sampler.set_epoch()",
    "layerwise_without_decay": "set a weight decay",
    "few_samples_in_batch_norm": "replace BatchNorm by GroupNorm",
    "not_finite": "lower the learning rate",
    "loss_exploded": "lower the learning rate",
    "skipped_steps": "use bfloat16",
    "rate_outside_momentum": "apply the rate first",
    "sync_batch_norm": "use plain BatchNorm",
    "rate_at_top": "step the schedule",
}


def run_checks(recorded: TrainingRecord) -> list[Finding]:
    """Return all that is found, most severe first."""
    order = list(Severity)[::-1]
    findings = [finding for check in CHECKS if (finding := check(recorded)) is not None]
    return sorted(findings, key=lambda item: order.index(item.severity))


def without_same_fix(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings without those whose fix another one of them asks for already."""
    there = {finding.rule_id for finding in findings}
    return [finding for finding in findings if COVERED_BY.get(finding.rule_id) not in there]
