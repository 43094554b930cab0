"""What ``feedline verify`` tried before: its ledger, read back."""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from feedline.analysis.formatting import BLANK
from feedline.cli.branch import LEDGER
from feedline.profiler.files import lists

if TYPE_CHECKING:
    from feedline.analysis.reports.console import Console

SPEED = "speed"
VERIFY = "verify"  # folder beside the runs, where trials are by default


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

    def says(self) -> str:
        """In a sentence, for a report."""
        measured = f"measured {self.measured}" if self.measured else "no gain was measured"
        expected = f", predicted {self.predicted}" if self.predicted else ""
        return f"tried on {self.at[:10]} by feedline verify: {self.change}: {measured}{expected}; {self.verdict}"


def lines(folder: Path) -> list[dict[str, Any]]:
    """The lines of the ledger in a folder, oldest first. A damaged one is left out."""
    found: list[dict[str, Any]] = []
    with suppress(OSError):
        if LEDGER not in lists.names(folder):
            return []
        for line in (folder / LEDGER).read_text(encoding="utf-8", errors="replace").splitlines():
            with suppress(ValueError):
                value = json.loads(line)
                found += [value] if isinstance(value, dict) else []
    return found


def read(lines: Iterable[Mapping[str, Any]]) -> list[Trial]:
    """What lines of a ledger say."""
    found = []
    for line in lines:
        with suppress(LookupError, TypeError, AttributeError, ValueError):
            found.append(trial(line))
    return found


def trial(line: Mapping[str, Any]) -> Trial:
    """A line. Raises LookupError, TypeError, AttributeError, ValueError: it is not one of feedline's."""
    at, verdict = str(line["at"]), str(line["verdict"])
    if line.get("kind") != SPEED:
        return Trial(at, "", str(line["fix"]), "", "", None, None, verdict)
    predicted, gain, residual, inside = line["predicted"], line["gain"], line["residual"], line["inside"]
    return Trial(
        at,
        str(line.get("run", "")),
        str(line["change"]),
        gains(*(predicted[name] / predicted["from"] - 1 for name in ("to", "low", "high"))) if predicted and predicted["from"] else "",
        gains(*(gain[name] for name in ("mean", "low", "high"))) if gain else "",
        None if residual is None else float(residual),
        None if inside is None else bool(inside),
        verdict,
    )


def gains(mean: float, low: float, high: float) -> str:
    """``+61.2 % [+58.0 %, +64.3 %]``."""
    from feedline.analysis.speed_trial import more

    return f"{more(mean)} [{more(low)}, {more(high)}]"


def identity(run: Path) -> str:
    """Of a run folder: its launch and its name, because one launch may record several; "": not known."""
    with suppress(OSError):
        listing = lists.read_list(run)
        return f"{listing.launch} {run.resolve().name}" if listing is not None and listing.launch else ""
    return ""


def notes(run: Path) -> list[str]:
    """What was tried from a run, for its report: by trials in ``verify`` beside it, or by those that recorded it themselves."""
    own = identity(run)
    folders = (run.parent / VERIFY, run.parent)
    return [trial.says() for folder in folders for trial in read(lines(folder)) if trial.run == own] if own else []


def first(gain: str) -> str:
    """The gain without its interval."""
    return gain.partition(" [")[0] or BLANK


def show(found: Sequence[Trial], console: "Console") -> None:
    """Print all trials, and how well they were predicted."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in ("tried", "change", "predicted", "measured", "ratio", "verdict"):
        table.add_column(name, justify="right" if name in ("predicted", "measured", "ratio") else "left")
    for one in found:
        ratio = f"{one.residual:.3f}" if one.residual is not None else BLANK
        cells = (one.at[:10], one.change, first(one.predicted), first(one.measured), ratio, one.verdict)
        table.add_row(*cells)
    console.print(table)
    known = [(one.residual, one.inside) for one in found if one.residual is not None]
    if known:
        error = median(abs(1 - residual) for residual, _ in known)
        inside = sum(bool(inside) for _, inside in known)
        console.print()
        console.print(
            f"Predictions: median error {100 * error:.1f} %; {inside} of {len(known)} gains overlap the predicted interval.",
            soft_wrap=True,
        )
