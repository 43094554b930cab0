"""Is the first finding right, how often is each rule, and are the predicted gains those that were
measured.
"""

import re
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from faults.bench import Gain, Recorded, Said, Settings
from twins import Estimate

TOP = 3
#: Faults of how a training is set up, which cost no time: they are told of its convergence, and not
#: among what limits it.
OF_SETUP = ("missing_set_epoch", "whole_data_on_every_rank")
#: Findings that ask for no change.
NOTHING = (
    "compute_bound",
    "too_short",
    "input_not_seen",
    "nothing_trained",
    "input_bound_unexplained",
)
#: A twin is this much faster, or its fault is none: the gate below which nothing is said of the
#: input.
PLANTED = 1.05


@dataclass(frozen=True)
class Judged:
    """One recording of a fault.

    Attributes:
        first: the first finding is one of those expected.
        among: one of the first three that ask for a change is.
        twin_free: the recording of the twin does not have it; None where that was not recorded.
    """

    name: str
    expected: tuple[str, ...]
    names: str
    recorded: Recorded
    twin: Recorded | None = None
    gain: Gain | None = None

    @property
    def told(self) -> list[str]:
        """Rule ids, first one first."""
        return [finding.rule_id for finding in relevant(self.recorded, self.expected)]

    @property
    def first(self) -> bool:
        return self._right(relevant(self.recorded, self.expected)[:1])

    @property
    def among(self) -> bool:
        asking = [
            finding
            for finding in relevant(self.recorded, self.expected)
            if finding.severity != "info"
        ]
        return self.first or self._right(asking[:TOP])

    def _right(self, findings: Sequence[Said]) -> bool:
        return any(
            finding.rule_id in self.expected
            and re.search(self.names, f"{finding.message}. {finding.fix}")
            for finding in findings
        )

    @property
    def twin_free(self) -> bool | None:
        return (
            None if self.twin is None else not self._right(relevant(self.twin, self.expected)[:1])
        )

    @property
    def finding(self) -> Said | None:
        """The one that was expected."""
        return next(
            (
                finding
                for finding in relevant(self.recorded, self.expected)
                if finding.rule_id in self.expected
            ),
            None,
        )

    @property
    def settings(self) -> Settings:
        """Of the loader, that it names."""
        return self.finding.settings if self.finding else {}

    @property
    def ratio(self) -> Estimate | None:
        """Samples/s without the fault over those with it: of plain runs, or else by the programs'
        own timers in the recordings.
        """
        pairs = (
            self.gain.pairs
            if self.gain
            else [(self.recorded.timed, self.twin.timed)]
            if self.twin and not self.settings
            else []
        )
        ratios = [
            after.samples_per_s / before.samples_per_s
            for before, after in pairs
            if before and after
        ]
        return Estimate.of(ratios) if ratios else None

    @property
    def at_most(self) -> float | None:
        """The same ratio if all that the finding says the fault costs were saved."""
        cost_s, step_s = self.finding.cost_s if self.finding else 0.0, self.recorded.step_s
        return step_s / (step_s - cost_s) if 0 < cost_s < step_s else None

    @property
    def predicted(self) -> tuple[float, ...] | None:
        """The ratio that the finding predicts, and both ends of its interval, where it has one."""
        told = self.finding.predicted if self.finding else {}
        return (
            tuple(told[key] / told["from"] for key in ("to", "low", "high") if key in told) or None
        )

    def as_json(self) -> dict[str, Any]:
        found = {
            "first": self.first,
            "among": self.among,
            "twin_free": self.twin_free,
            "at_most": self.at_most,
            "predicted": self.predicted,
        }
        return {**asdict(self), **found, "ratio": asdict(self.ratio) if self.ratio else None}


def relevant(recorded: Recorded, expected: Sequence[str]) -> list[Said]:
    """The findings among which such a fault is told."""
    return recorded.checks if expected[0] in OF_SETUP else recorded.findings


def alarms(healthy: dict[str, list[Recorded]]) -> list[str]:
    """What is said with high severity of trainings without a fault."""
    found = [
        (name, finding)
        for name, runs in healthy.items()
        for one in runs
        for finding in one.findings
    ]
    return [
        f"`{name}`: `{finding.rule_id}`: {finding.message}"
        for name, finding in found
        if finding.severity == "high"
    ]


@dataclass(frozen=True)
class OfRule:
    """How often a rule is right.

    Attributes:
        planted: recordings of faults that it has to find first.
        found, among: of them, where it, or another id that is right too, is first, or one of three.
        said: recordings, of faults, twins and healthy trainings, whose first finding asks for a
            change and is this rule's.
        right: of them, those of faults for which it is right.
    """

    rule_id: str
    planted: int
    found: int
    among: int
    said: int
    right: int


def rules(faults: Sequence[Judged], healthy: dict[str, list[Recorded]]) -> list[OfRule]:
    """Each that has a fault, or was said."""
    others = [one for runs in healthy.values() for one in runs]
    names = {one.expected[0] for one in faults} | {
        first for one in [*others, *(one.recorded for one in faults)] if (first := leads(one))
    }
    return [of_rule(rule_id, faults, others) for rule_id in sorted(names)]


def of_rule(rule_id: str, faults: Sequence[Judged], healthy: Sequence[Recorded]) -> OfRule:
    planted = [one for one in faults if one.expected[0] == rule_id]
    said = [one for one in faults if one.told[:1] == [rule_id]]
    wrong = [one for one in healthy if leads(one, "high") == rule_id]
    right = [one for one in said if one.first]
    return OfRule(
        rule_id,
        len(planted),
        sum(one.first for one in planted),
        sum(one.among for one in planted),
        len(said) + len(wrong),
        len(right),
    )


def leads(recorded: Recorded, severity: str = "") -> str:
    """The first finding's rule, where it asks for a change (and has this severity)."""
    first = recorded.findings[0] if recorded.findings else None
    if first is None or first.rule_id in NOTHING or (severity and first.severity != severity):
        return ""
    return first.rule_id


@dataclass(frozen=True)
class Errors:
    """How far ratios are from those measured; shares from 0 to 1."""

    count: int
    median: float
    largest: float

    @classmethod
    def of(cls, pairs: Sequence[tuple[float, float]]) -> "Errors | None":
        """Of (said, measured)."""
        errors = [abs(said / measured - 1) for said, measured in pairs]
        return cls(len(errors), statistics.median(errors), max(errors)) if errors else None


@dataclass(frozen=True)
class Predictions:
    """Of all faults whose gain was measured and whose finding was there.

    Attributes:
        intervals: predictions that have one.
        inside: those of them that hold what was measured.
        refused: reason -> how often.
    """

    predicted: Errors | None
    at_most: Errors | None
    at_most_of_predicted: Errors | None
    intervals: int
    inside: int
    refused: dict[str, int]


def predictions(faults: Sequence[Judged]) -> Predictions:
    known = [one for one in faults if one.ratio is not None and one.finding is not None]
    with_both = [
        (one.predicted, one.ratio.median, one.at_most)
        for one in known
        if one.predicted and one.ratio
    ]
    refused = [
        one.finding.refused or "no prediction in the report"
        for one in known
        if one.finding and one.predicted is None
    ]
    return Predictions(
        Errors.of([(told[0], measured) for told, measured, _ in with_both]),
        Errors.of([(one.at_most, one.ratio.median) for one in known if one.at_most and one.ratio]),
        Errors.of([(most, measured) for _, measured, most in with_both if most]),
        sum(len(told) == 3 for told, _, _ in with_both),
        sum(len(told) == 3 and told[1] <= measured <= told[2] for told, measured, _ in with_both),
        {reason: refused.count(reason) for reason in sorted(set(refused))},
    )
