"""Correctness first: what is wrong with how a training is set up, before its batch size is judged. One small function per mistake."""

from collections.abc import Callable

from feedline.analysis.convergence.checks import batch_norm, data, gradients, loss, optimizers, schedule
from feedline.analysis.convergence.recorded import Recorded
from feedline.analysis.ledger.finding import Finding, Severity

Check = Callable[[Recorded], Finding | None]

#: In the order in which findings of one severity are shown.
CHECKS: list[Check] = [
    gradients.same_data,
    gradients.sum_not_mean,
    data.whole_data,
    schedule.schedule_in_steps,
    data.missing_set_epoch,
    optimizers.layerwise_without_decay,
    batch_norm.few_samples,
    loss.not_finite,
    loss.exploded,
    loss.skipped_steps,
    optimizers.rate_outside_momentum,
    batch_norm.sync_batch_norm,
    schedule.rate_at_top,
]

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
_OF_GRADIENTS = frozenset(["same_data", "sum_not_mean"])
#: Why it then says nothing; batch norm over a few samples adds to the noise.
WITHOUT_NOISE_SCALE = {
    **{rule_id: f"the gradients are not a mean over distinct samples ({rule_id})" for rule_id in sorted(_OF_GRADIENTS)},
    "few_samples_in_batch_norm": "batch norm over a few samples adds noise of its own to the gradients (few_samples_in_batch_norm)",
    "loss_exploded": "the training diverged (loss_exploded)",
}
#: The training has diverged: going on cannot repair it.
DIVERGED = ("not_finite", "loss_exploded")
#: The training is another than it was meant to be: that is to be heard before anything about how fast it is.
GRAVE = frozenset([*_OF_GRADIENTS, "whole_data_on_every_rank", *DIVERGED])


#: Told among the findings, but no answer to what holds the run back: a run that is only measured ends before its schedule.
ASIDE = ("schedule_in_steps", "skipped_steps")


def run_checks(recorded: Recorded) -> list[Finding]:
    """All that is found, most severe first."""
    order = list(Severity)[::-1]
    found = [finding for check in CHECKS if (finding := check(recorded)) is not None]
    return sorted(found, key=lambda one: order.index(one.severity))


def stops(finding: Finding) -> bool:
    """Whether nothing else should be advised before this is fixed."""
    return finding.rule_id in STOPS and finding.severity is not Severity.INFO
