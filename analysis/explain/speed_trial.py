"""Whether a change makes a training faster.

Short runs with and without it are made in pairs, beside what was predicted. What was tried before
is read back from the ledger of ``feedline verify``.
"""

import ast
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from feedline.analysis.ledger.finding import REJECTED, PredictedRate, Refused
from feedline.profiler.errors import NotJudged, OverBudget
from feedline.profiler.files import own_folders
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
LEDGER = "ledger.jsonl"
SPEED = "speed"
_VERIFY = "verify"  # folder beside the runs, where trials are by default


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
    percent = f"{_more(gain.mean)} ({_more(gain.low)} to {_more(gain.high)}) in {gain.pairs} pairs of runs"
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


def _more(gain: float) -> str:
    """Return a gain as a percentage with its sign: +12.3 %."""
    return f"{100 * gain:+.1f} %"


@dataclass(frozen=True)
class Trial:
    """A line of the ledger.

    Attributes:
        at: date and time, UTC.
        run: identity of the run that was predicted from; "": none.
        change: what was tried.
        predicted, measured: gains, as +61.2 % [58.0 %, 64.3 %]; "": none.
        residual: measured over predicted; None: one of them is missing.
        inside: whether the intervals of the measured and the predicted gain overlap.
        verdict: "accept", "reject" or "inconclusive".
        applies: whether the unchanged training ran as fast as recorded, which the prediction is
            for.
    """

    at: str
    run: str
    change: str
    predicted: str
    measured: str
    residual: float | None
    inside: bool | None
    verdict: str
    applies: bool = True

    @property
    def settings(self) -> dict[str, int | bool]:
        """Arguments of the DataLoader that were tried; empty: something else was."""
        try:
            call = ast.parse(f"f({self.change})", mode="eval").body
            given = (
                {word.arg: ast.literal_eval(word.value) for word in call.keywords}
                if isinstance(call, ast.Call)
                else {}
            )
        except (SyntaxError, ValueError):
            return {}
        return {
            name: value
            for name, value in given.items()
            if name is not None and isinstance(value, int)
        }

    def refusal(self) -> Refused:
        """Say why a change that was rejected is neither predicted nor recommended."""
        outcome = f"measured {self.measured}" if self.measured else "the training failed with it"
        return Refused(
            REJECTED,
            f"{self.change} was tried by feedline verify on {self.at[:10]} and rejected: {outcome}",
        )

    def says(self) -> str:
        """Say it in a sentence, for a report."""
        measured = f"measured {self.measured}" if self.measured else "no gain was measured"
        expected = f", predicted {self.predicted}" if self.predicted else ""
        if not self.applies:
            expected = " under other conditions than recorded, to which no prediction applies"
        return (
            f"tried on {self.at[:10]} by feedline verify: {self.change}: {measured}{expected}; "
            f"{self.verdict}"
        )


def lines(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of the ledger in a folder, oldest first.

    A damaged one is left out.
    """
    entries: list[dict[str, Any]] = []
    with suppress(OSError):
        if LEDGER not in own_folders.listed_names(folder):
            return []
        for line in (folder / LEDGER).read_text(encoding="utf-8", errors="replace").splitlines():
            with suppress(ValueError):
                value = json.loads(line)
                entries += [value] if isinstance(value, dict) else []
    return entries


def read(lines: Iterable[Mapping[str, Any]]) -> list[Trial]:
    """Return what lines of a ledger say."""
    trials = []
    for line in lines:
        with suppress(LookupError, TypeError, AttributeError, ValueError):
            trials.append(_trial(line))
    return trials


def _trial(line: Mapping[str, Any]) -> Trial:
    """Read a line.

    Raises LookupError, TypeError, AttributeError, ValueError: it is not one of feedline's.
    """
    at, verdict = str(line["at"]), str(line["verdict"])
    if line.get("kind") != SPEED:
        return Trial(at, "", str(line["fix"]), "", "", None, None, verdict)
    predicted = line["predicted"]
    gain = line["gain"]
    residual = line["residual"]
    inside = line["inside"]
    expected = (
        _gains(*(predicted[name] / predicted["from"] - 1 for name in ("to", "low", "high")))
        if predicted and predicted["from"]
        else ""
    )
    return Trial(
        at,
        str(line.get("run", "")),
        str(line["change"]),
        expected,
        _gains(*(gain[name] for name in ("mean", "low", "high"))) if gain else "",
        None if residual is None else float(residual),
        None if inside is None else bool(inside),
        verdict,
        applies=residual is not None or not expected or not gain,
    )


def _gains(mean: float, low: float, high: float) -> str:
    """Return ``+61.2 % [+58.0 %, +64.3 %]``."""
    return f"{_more(mean)} [{_more(low)}, {_more(high)}]"


def identity(run: Path) -> str:
    """Return what identifies a run folder; "": not known.

    That is its launch and its name, because one launch may record several.
    """
    with suppress(OSError):
        listing = own_folders.read_list(run)
        return (
            f"{listing.launch} {run.resolve().name}"
            if listing is not None and listing.launch
            else ""
        )
    return ""


def trials_of(run: Path) -> list[Trial]:
    """Return what was tried from a run.

    Trials in ``verify`` beside it did so, or those that recorded it themselves.
    """
    own = identity(run)
    folders = (run.parent / _VERIFY, run.parent)
    return (
        [trial for folder in folders for trial in read(lines(folder)) if trial.run == own]
        if own
        else []
    )
