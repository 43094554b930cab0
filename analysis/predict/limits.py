"""What limits a training once it is changed.

It is what would raise its throughput further, by the same prediction. Both are the answer of
``feedline whatif``, as it prints it and writes it as JSON.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from feedline.analysis.ledger.finding import Change, Factor, PredictedRate, Refused

#: Times the throughput: what raises it by less is not called a limit. The replay's own error is of
#: that size (docs/measured/whatif.md).
_WORTH = 1.05
_MANY_CPUS = 1024.0
_MORE_WORKERS = 2  # times as many
# why the replay refuses a prediction that would read faster than the disk was seen to
_OF_DISK = "disk_bandwidth"
CPUS = "cpus"
WORKERS = "workers"
BOTH = "cpus_and_workers"
ALONE = "no_workers"
PASSES = "epoch_starts"
STEP = "step"
DISK = "disk"


class Predictor(Protocol):
    """What a change makes of a training's throughput."""

    def __call__(self, change: Change, interval: bool = True) -> PredictedRate | Refused:
        """Predict it.

        Without its interval, low and high are the prediction itself, which is several times faster.
        """


@dataclass(frozen=True)
class NextLimit:
    """What limits the training after a change.

    Attributes:
        id: ``cpus``, ``workers``, ``cpus_and_workers``, ``no_workers`` (the main process makes its
            batches itself), ``epoch_starts`` (training waits for the first batch of each pass over
            the loader), ``disk`` (more than it was seen to give would be read), or ``step``:
            whatever the loader is given, the rest of the step takes as long.
        samples_per_s: without this limit; of ``step`` and ``disk``, as with it.
    """

    id: str
    samples_per_s: float


def next_limit(
    predict: Predictor, change: Change, after: PredictedRate, workers: int
) -> NextLimit | None:
    """Lift one limit after the other in the replay, and see which makes a difference.

    Args:
        after: predicted for the change.
        workers: after it.

    Returns:
        None where nothing is predicted without a limit.
    """
    free = replace(change, cpus=_MANY_CPUS, others=False)
    with_more = _with_workers(change.settings, max(1, _MORE_WORKERS * workers))
    lifted = {
        CPUS: predict(free, interval=False),
        WORKERS if workers else ALONE: predict(replace(change, settings=with_more), interval=False),
        PASSES: predict(replace(change, endless=True), interval=False),
        BOTH: predict(replace(free, settings=with_more), interval=False),
    }
    rates = {name: rate.after for name, rate in lifted.items() if isinstance(rate, PredictedRate)}
    if len(rates) < len(lifted):
        refused = {rate.reason for rate in lifted.values() if isinstance(rate, Refused)}
        return NextLimit(DISK, after.after) if refused == {_OF_DISK} else None
    single = {name: rate for name, rate in rates.items() if name != BOTH}
    for among in (single, rates):
        best = max(among, key=lambda name: among[name])
        if among[best] >= _WORTH * after.after:
            return NextLimit(best, among[best])
    return NextLimit(STEP, after.after)


def _with_workers(settings: Mapping[str, int | bool], workers: int) -> dict[str, int | bool]:
    return {**settings, "num_workers": workers}


@dataclass(frozen=True)
class WhatIf:
    """A prediction for changed settings, or why there is none.

    Attributes:
        settings: what was asked for: arguments of the DataLoader, cores, ...; those of the fix too.
        fix: id of the finding whose fix was asked for; empty: of none.
        before, after, low, high: samples/s as recorded and with the settings, and the 95 % interval of that. None: refused.
        measured_interval: 95 % interval of the measured rate, where it is wide: how another run without the change may differ.
        refused: None: there is a prediction.
        limit: what limits the training then. None: not known.
        stages: stage -> its factor, for parts of a sample that were measured again.
        line: of the program, to change: ``DataLoader(..., num_workers=4)  # now 1, train.py:31``; empty where no setting of it changes.
        remarks: on side effects and on what was measured.
    """

    settings: Mapping[str, int | float | bool | str]
    fix: str = ""
    before: float | None = field(default=None, metadata={"key": "from"})
    after: float | None = field(default=None, metadata={"key": "to"})
    low: float | None = None
    high: float | None = None
    refused: Refused | None = None
    limit: NextLimit | None = None
    stages: Mapping[str, Factor] = field(default_factory=dict)
    line: str = ""
    remarks: tuple[str, ...] = ()
    measured_interval: tuple[float, float] | None = None


def answer(
    asked: WhatIf, predict: Predictor, change: Change, workers: int, extremes: Iterable[Change] = ()
) -> WhatIf:
    """Return the question with its prediction, and with what would limit the training then.

    Args:
        workers: with the change.
        extremes: the change as it could also be, where it was measured: the interval holds theirs.
    """
    rate = predict(change)
    if isinstance(rate, Refused):
        return replace(asked, refused=rate, line="")
    around = [
        rate,
        *(other for extreme in extremes if isinstance(other := predict(extreme), PredictedRate)),
    ]
    low, high = min(extreme.low for extreme in around), max(extreme.high for extreme in around)
    limit = next_limit(predict, change, rate, workers)
    return replace(
        asked,
        before=rate.before,
        after=rate.after,
        low=low,
        high=high,
        limit=limit,
        stages=change.stages,
    )


def rate_of(answered: WhatIf) -> PredictedRate | None:
    """Return the predicted rate alone; None: refused."""
    if (
        answered.before is None
        or answered.after is None
        or answered.low is None
        or answered.high is None
    ):
        return None
    return PredictedRate(answered.before, answered.after, answered.low, answered.high)
