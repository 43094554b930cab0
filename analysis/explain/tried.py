"""What ``feedline verify`` tried before: its ledger, read back.

What it rejected is not recommended again.
"""

import ast
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from feedline.analysis.explain.speed_trial import REJECT, more
from feedline.analysis.ledger.change import REJECTED, Refused
from feedline.profiler.files import own_folders

LEDGER = "ledger.jsonl"
SPEED = "speed"
_VERIFY = "verify"  # folder beside the runs, where trials are by default


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
    """

    at: str
    run: str
    change: str
    predicted: str
    measured: str
    residual: float | None
    inside: bool | None
    verdict: str

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
    return Trial(
        at,
        str(line.get("run", "")),
        str(line["change"]),
        _gains(*(predicted[name] / predicted["from"] - 1 for name in ("to", "low", "high")))
        if predicted and predicted["from"]
        else "",
        _gains(*(gain[name] for name in ("mean", "low", "high"))) if gain else "",
        None if residual is None else float(residual),
        None if inside is None else bool(inside),
        verdict,
    )


def _gains(mean: float, low: float, high: float) -> str:
    """Return ``+61.2 % [+58.0 %, +64.3 %]``."""
    return f"{more(mean)} [{more(low)}, {more(high)}]"


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


def of_run(run: Path) -> list[Trial]:
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


def rejected(run: Path) -> list[Trial]:
    """Return the trials whose settings were rejected, and not accepted since."""
    last = {
        tuple(sorted(trial.settings.items())): trial
        for trial in sorted(of_run(run), key=lambda trial: trial.at)
        if trial.settings
    }
    return [trial for trial in last.values() if trial.verdict == REJECT]
