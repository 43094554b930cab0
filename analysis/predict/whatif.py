"""The answer to "what would it give?", as ``feedline whatif`` prints it and writes it as JSON."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from feedline.analysis.ledger.change import Change, Factor, PredictedRate, Refused
from feedline.analysis.predict.limits import NextLimit, Predictor, next_limit


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
