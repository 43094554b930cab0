"""Whether a change makes a training faster.

Short runs with and without it are made in pairs, beside what was predicted.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from feedline.analysis.ledger.change import PredictedRate
from feedline.profiler.errors import NotJudged, OverBudget
from feedline.profiler.noise_scale import mean_interval

UNCHANGED, CHANGED = "unchanged", "changed"
ACCEPT, REJECT, INCONCLUSIVE = "accept", "reject", "inconclusive"
# exit codes (docs/exit-codes.md)
CODES = {ACCEPT: 0, REJECT: OverBudget.exit_code, INCONCLUSIVE: NotJudged.exit_code}
# times: how much faster or slower the unchanged training runs at least, where its conditions have
# changed
_CHANGED_BY = 1.25
# gain that a change must be sure to give: less is not worth a line of code, and within what
# machines drift
MARGIN = 0.02


@dataclass(frozen=True)
class TrialRun:
    """One short run.

    Attributes:
        arm: UNCHANGED or CHANGED.
        pair: which one it belongs to, from 1.
        rate: steady throughput of all ranks, in ``SpeedTrial.unit``; None: it failed.
        steps: it is the mean of.
        failed: why there is no rate; "" where there is one.
    """

    arm: str
    pair: int
    rate: float | None
    steps: int
    failed: str = ""


@dataclass(frozen=True)
class Recorded:
    """The throughput of the run that a change is predicted from, with its 95 % interval if known."""

    rate: float
    low: float | None
    high: float | None

    def differs(self, rate: float) -> bool:
        """Tell whether the same training at this rate runs under other conditions."""
        inside = (
            self.low is not None and self.low <= rate and (self.high is None or rate <= self.high)
        )
        return not inside and not 1 / _CHANGED_BY <= rate / self.rate <= _CHANGED_BY


@dataclass(frozen=True)
class _MeasuredGain:
    """Throughput with the change over that without it, less 1.

    It is the geometric mean over pairs, with the 95 % interval by Student's t.
    """

    mean: float
    low: float
    high: float
    pairs: int


@dataclass(frozen=True)
class SpeedTrial:
    """What a verification found.

    Attributes:
        change: ``num_workers=4``.
        finding: whose fix it is; "": none.
        made_at: the call that makes the DataLoader; "": not known.
        unit: "samples/s", or "steps/s" where samples were not seen.
        runs: in the order in which they ran.
        predicted: None: refused, for this reason.
        measured: mean rate without the change, and the same times the gain; None: too few runs.
        recorded: in ``unit``. None: not known.
        residual: measured over predicted, of the rate with the change over that without it. None:
            one of them is missing, or conditions have changed since the recording, which the
            prediction is for.
        inside: whether the intervals of the measured and the predicted gain overlap.
        verdict: "accept", "reject" or "inconclusive".
        why: in a sentence, with figures and the rule.
    """

    change: str
    finding: str
    made_at: str
    unit: str
    margin: float
    runs: list[TrialRun]
    predicted: PredictedRate | None
    refused: str
    recorded: Recorded | None
    measured: PredictedRate | None
    gain: _MeasuredGain | None
    residual: float | None
    inside: bool | None
    verdict: str
    why: str

    @property
    def conditions_changed(self) -> bool:
        """Whether the unchanged training runs at another rate than recorded."""
        return (
            self.recorded is not None
            and self.measured is not None
            and self.recorded.differs(self.measured.before)
        )


@dataclass(frozen=True)
class Tried:
    """What was tried: the first attributes of a ``SpeedTrial``."""

    change: str
    finding: str
    made_at: str
    unit: str
    margin: float
    predicted: PredictedRate | None
    refused: str
    recorded: Recorded | None = None


def decide(tried: Tried, runs: Sequence[TrialRun]) -> SpeedTrial:
    """Accept a change that is faster by more than the margin with 95 % confidence.

    Reject one that is not, with the same confidence, or with which the training fails. Everything
    else is inconclusive.
    """
    gain = _gain_of(runs)
    measured, residual, inside = None, None, None
    if gain is not None:
        before = fmean(run.rate for run in runs if run.arm == UNCHANGED and run.rate is not None)
        measured = PredictedRate(
            before, *(before * (1 + part) for part in (gain.mean, gain.low, gain.high))
        )
    comparable = measured is not None and (
        tried.recorded is None or not tried.recorded.differs(measured.before)
    )
    if (
        gain is not None
        and comparable
        and tried.predicted is not None
        and tried.predicted.before > 0
    ):
        expected = tried.predicted
        residual = (1 + gain.mean) * expected.before / expected.after
        inside = (1 + gain.low) * expected.before <= expected.high and (
            1 + gain.high
        ) * expected.before >= expected.low
    verdict, why = _judged(runs, gain, tried.margin)
    return SpeedTrial(
        **vars(tried),
        runs=list(runs),
        measured=measured,
        gain=gain,
        residual=residual,
        inside=inside,
        verdict=verdict,
        why=why,
    )


def _gain_of(runs: Sequence[TrialRun]) -> _MeasuredGain | None:
    """Return the gain over whole pairs; None: there are fewer than two."""
    rates = {(run.arm, run.pair): run.rate for run in runs if run.rate}
    logs = [
        math.log(rate / rates[UNCHANGED, pair])
        for (arm, pair), rate in rates.items()
        if arm == CHANGED and (UNCHANGED, pair) in rates
    ]
    if len(logs) < 2:
        return None
    mean, low, high = map(math.expm1, mean_interval(logs))
    return _MeasuredGain(mean, low, high, len(logs))


def _judged(runs: Sequence[TrialRun], gain: _MeasuredGain | None, margin: float) -> tuple[str, str]:
    """Return the verdict and its reason."""
    failed = {
        arm: [run for run in runs if run.arm == arm and run.failed] for arm in (UNCHANGED, CHANGED)
    }
    if failed[CHANGED] and not failed[UNCHANGED]:
        which = f"1 run failed ({failed[CHANGED][0].failed})"
        if len(failed[CHANGED]) > 1:
            which = f"{len(failed[CHANGED])} runs failed (the first: {failed[CHANGED][0].failed})"
        return REJECT, f"with the change, {which}; without it, none did"
    if failed[UNCHANGED]:
        return INCONCLUSIVE, f"the unchanged training failed ({failed[UNCHANGED][0].failed})"
    if gain is None:
        return (
            INCONCLUSIVE,
            "one pair of runs does not show how much they vary: use --pairs 3 or more",
        )
    percent = (
        f"{more(gain.mean)} ({more(gain.low)} to {more(gain.high)}) in {gain.pairs} pairs of runs"
    )
    wanted = f"{100 * margin:g} %"
    if gain.low > margin:
        return ACCEPT, f"throughput {percent}; more than {wanted} was required"
    if gain.high <= margin:
        return REJECT, f"throughput {percent}; more than {wanted} was required"
    return (
        INCONCLUSIVE,
        f"throughput {percent}; the required {wanted} lies inside the interval: raise --pairs or "
        f"--steps",
    )


def more(gain: float) -> str:
    """Return a gain as a percentage with its sign: +12.3 %."""
    return f"{100 * gain:+.1f} %"
