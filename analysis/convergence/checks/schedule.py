"""Whether the schedule and the training have one length."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from feedline.analysis.convergence.checks.setup import listed
from feedline.analysis.convergence.recorded import Recorded
from feedline.analysis.formatting import count, share
from feedline.analysis.ledger.finding import Evidence, Finding, Severity

#: A schedule may be off by a ragged batch or an epoch; the batch that grew makes it off by the factor that it grew by.
_TOO_LONG, _TOO_SHORT = 1.5, 0.67
_FEWEST_STEPS = 5  # of a scheduler; fewer are a trial run
#: Schedulers that go on at what they came to where their steps are over, so that ending early is meant.
_STAY = {"LinearLR", "ConstantLR", "StepLR", "MultiStepLR", "PolynomialLR", "SequentialLR", "ExponentialLR"}
#: Schedulers that take the rate down in the end.
_DECAY = {"CosineAnnealingLR", "OneCycleLR", "PolynomialLR", "StepLR", "MultiStepLR", "ExponentialLR"}
_AT_TOP = 0.9


def schedule_in_steps(recorded: Recorded) -> Finding | None:
    """A schedule that was told another number of steps than the training made."""
    for scheduler in listed(recorded, "schedulers"):
        horizon, steps, kind = scheduler.get("horizon"), scheduler.get("steps"), str(scheduler.get("kind"))
        if not recorded.ended or not horizon or not steps or steps < _FEWEST_STEPS:
            continue
        over = horizon < _TOO_SHORT * steps and kind not in _STAY
        if not over and horizon <= _TOO_LONG * steps:
            continue
        times = horizon / steps
        what = (
            f"ended after {share(times)} of the training: it is set to {count(horizon)} steps"
            if over
            else f"did not reach its end: it is set to {count(horizon)} steps"
        )
        return Finding(
            "schedule_in_steps",
            Severity.HIGH,
            message=f"{kind} {what}, but scheduler.step() was called {count(steps)} times. A schedule that counts steps does not adapt to "
            "the batch size",
            evidence=[
                Evidence("schedule_steps", "steps of the schedule", horizon, "steps"),
                Evidence("steps", "calls of scheduler.step()", steps, "steps"),
            ],
            fix=f"Set the length of {kind} (T_max, total_steps or total_iters) to the number "
            f"of scheduler.step() calls, here {count(steps)}: len(loader) * epochs if it is "
            "called once per batch.",
            how_to_check="If the training was meant to stop before its schedule ends, this finding is wrong.",
        )
    return None


def _should_have_lowered(scheduler: Mapping[str, Any]) -> bool:
    """Whether a scheduler lowers the rate in the end, and was either never stepped or more often than in a trial run."""
    return str(scheduler.get("kind")) in _DECAY and not 0 < (scheduler.get("steps") or 0) < _FEWEST_STEPS


def rate_at_top(recorded: Recorded) -> Finding | None:
    """A schedule that should take the rate down, and did not."""
    rate = recorded.curves.get("lr")
    kinds = [str(one.get("kind")) for one in listed(recorded, "schedulers") if _should_have_lowered(one)]
    if not recorded.ended or rate is None or not kinds or schedule_in_steps(recorded) is not None:
        return None
    values = rate.values[np.isfinite(rate.values)]
    if len(values) < 2 * _FEWEST_STEPS or values.max() <= 0 or values[-1] < _AT_TOP * values.max():
        return None
    return Finding(
        "rate_at_top",
        Severity.INFO,
        message=f"the training ended at {share(values[-1] / values.max())} of its highest learning rate, although {', '.join(kinds)} "
        "should have lowered it: the final loss still contains the noise of a high learning rate",
        evidence=[
            Evidence("last_rate", "last learning rate", float(values[-1]), "1"),
            Evidence("highest_rate", "highest learning rate", float(values.max()), "1"),
        ],
        fix="Call scheduler.step() in the unit of the schedule (per batch or per epoch), or set its length to the number of calls.",
        how_to_check="Lower the learning rate over the last tenth. If the loss does not fall, this finding is wrong.",
    )
