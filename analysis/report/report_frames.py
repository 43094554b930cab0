"""The frames of a report, with units and meanings: findings, the program's functions and lines."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from feedline.analysis.explain.model import Report
from feedline.analysis.ledger.finding import Finding
from feedline.analysis.measure.user_code import UserFunction

if TYPE_CHECKING:
    import pandas as pd


#: Kind of a column -> its dtype. An integer that may be missing is "Int64"; "str" is what this
#: pandas has for text.
_DTYPE_OF_KIND = {
    "integer": "int64",
    "number": "float64",
    "bool": "bool",
    "time": "datetime64[ns, UTC]",
    "text": "str",
}
_DOC_WIDTH = 100  # of a docstring
Rows = Mapping[str, Any]  # column -> array [n], of one rank or process
_NO_COST = "it names no cost in time"
_NOT_AN_INTERVAL = "cost_s is not a prediction"
_NOT_PREDICTED = "refused says why it is not predicted"
_NOT_BOUNDED = "that is not predicted"
_NO_RANK = "it does not name one rank"
_A_LINE = "the row is of one line"
_NO_STEP = "it is not part of the step, or the time of making batches is not known"


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        kind: of _DTYPE_OF_KIND.
        unit: "" for text, counts and the like.
        missing: when a value is missing (NaN, NaT or NA); empty: never.
    """

    name: str
    kind: str
    unit: str
    meaning: str
    missing: str = ""

    @property
    def dtype(self) -> str:
        """Of the frame's column."""
        return "Int64" if self.kind == "integer" and self.missing else _DTYPE_OF_KIND[self.kind]

    def text(self) -> str:
        """Say unit, meaning and when it is missing, in one line."""
        unit = f" [{self.unit}]" if self.unit else ""
        missing = f". Missing: {self.missing}" if self.missing else ""
        return f"{self.name}{unit}: {self.meaning}{missing}".removesuffix(".") + "."


@dataclass(frozen=True)
class FrameTable:
    """A frame before it has rows.

    Attributes:
        name: of the property of a loaded run.
        rows: what a row is, in sentences.
        columns: in order. A name in angle brackets stands for any number of columns.
    """

    name: str
    rows: str
    columns: tuple[Column, ...]

    @property
    def fixed(self) -> tuple[Column, ...]:
        """The columns that every run has."""
        return tuple(column for column in self.columns if not column.name.startswith("<"))

    def frame(self, parts: Sequence[Rows], more: Sequence[str] = ()) -> "pd.DataFrame":
        """Make the frame of all parts, one below the other.

        Args:
            parts: column -> array or list [n]. A negative integer stands for a missing one in a
                column that may miss values.
            more: columns of numbers after the fixed ones; 0 in a part that lacks one.
        """
        import pandas as pd

        rows = [len(part[self.columns[0].name]) for part in parts]
        columns = {
            column.name: _series(column, [part[column.name] for part in parts])
            for column in self.fixed
        }
        for name in more:
            columns[name] = pd.Series(
                _joined([part.get(name, np.zeros(n)) for part, n in zip(parts, rows, strict=True)]),
                dtype="float64",
            )
        return pd.DataFrame(columns)

    def docstring(self) -> str:
        """Write the docstring for the property of a loaded run."""
        lines = [
            textwrap.fill(
                column.text(), _DOC_WIDTH, subsequent_indent="    ", break_on_hyphens=False
            )
            for column in self.columns
        ]
        return "\n".join(
            [textwrap.fill(self.rows, _DOC_WIDTH, break_on_hyphens=False), "", *lines, ""]
        )

    def markdown(self) -> str:
        """Write a section of docs/api.md."""
        rows = ["| column | type | unit | meaning | missing when |", "|---|---|---|---|---|"]
        rows += [
            f"| `{column.name}` | {column.kind} | {column.unit} | {column.meaning} | "
            f"{column.missing} |"
            for column in self.columns
        ]
        return f"## {self.name}\n\n{self.rows}\n\n" + "\n".join(rows) + "\n"


def _series(column: Column, values: Sequence[Any]) -> "pd.Series":
    import pandas as pd

    if column.kind == "text":
        return pd.Series([text for part in values for text in part], dtype="str")
    joined = _joined(values)
    if column.kind == "time":
        return pd.Series(pd.to_datetime(joined.astype(np.int64).view("datetime64[ns]"), utc=True))
    if column.dtype == "Int64":
        return pd.Series(joined.astype(np.int64), dtype="Int64").mask(joined < 0)
    return pd.Series(joined, dtype=column.dtype)


def _joined(values: Sequence[Any]) -> np.ndarray:
    return np.concatenate(values) if values else np.zeros(0)


USER_CODE = FrameTable(
    "user_code",
    "One row for each line of a function of the program that takes time, from sampled stacks of "
    "the rank that the report shows, and one with line 0 for the whole function. Empty if no "
    "stacks were sampled.",
    (
        Column("kind", "text", "", "process: worker or main"),
        Column("place", "text", "", "part of the pipeline: dataset, collate, forward, ..."),
        Column("function", "text", "", "its name"),
        Column("file", "text", "", "its file"),
        Column("line", "integer", "", "the line; 0: the whole function"),
        Column("share", "number", "1", "of making a sample; in other places, of the step"),
        Column("low", "number", "1", "lower end of its 95 % interval", _A_LINE),
        Column("high", "number", "1", "upper end", _A_LINE),
        Column("seconds_per_step", "number", "s", "what it takes of one process", _NO_STEP),
        Column("caller", "text", "", "function and line that call it; empty: a library does"),
        Column("library", "text", "", "function of a library that it mostly calls there"),
    ),
)

FINDINGS = FrameTable(
    "findings",
    "One row per finding of the report, most important first. `run.report.findings` has their "
    "evidence, too.",
    (
        Column(
            "cause",
            "text",
            "",
            "Stable identifier of the rule that found it: decode_bound, too_few_workers, ...",
        ),
        Column("severity", "text", "", "high, low or info"),
        Column("says", "text", "", "One sentence with the figures"),
        Column("cost_s", "number", "s", "What it costs per step", _NO_COST),
        Column(
            "cost_kind",
            "text",
            "",
            "What cost_s says of the gain: predicted, estimated, or_more, at_least, bound, cause_only or unknown",
        ),
        Column(
            "cost_low_s",
            "number",
            "s",
            "Lower end of the interval of a prediction (95 %)",
            _NOT_AN_INTERVAL,
        ),
        Column("cost_high_s", "number", "s", "Its upper end", _NOT_AN_INTERVAL),
        Column("step_share", "number", "", "cost_s as a share of the mean step, 0 to 1", _NO_COST),
        Column("fix", "text", "", "What to change"),
        Column(
            "how_to_check",
            "text",
            "",
            "An experiment, and the outcome that would prove this finding wrong",
        ),
        Column(
            "predicted",
            "number",
            "samples/s",
            "Throughput with its fix, as predicted",
            _NOT_PREDICTED,
        ),
        Column(
            "predicted_low", "number", "samples/s", "Lower end of its 95 % interval", _NOT_PREDICTED
        ),
        Column("predicted_high", "number", "samples/s", "Its upper end", _NOT_PREDICTED),
        Column("place", "text", "", "file and line to change; empty: unknown, or several"),
        Column(
            "at_most_per_s",
            "number",
            "samples/s",
            "upper end of the throughput predicted if what it names took no time",
            _NOT_BOUNDED,
        ),
        Column("refused", "text", "", "Why its fix is not predicted; empty where it is"),
        Column("rank", "integer", "", "The rank that the others wait for", _NO_RANK),
    ),
)


def findings(report: Report) -> "pd.DataFrame":
    """Make the frame of findings."""
    mean = report.step.mean_s if report.step is not None else 0.0
    costs = [finding.cost_s if finding.cost_s > 0 else None for finding in report.findings]
    return FINDINGS.frame(
        [
            {
                "cause": [finding.rule_id for finding in report.findings],
                "says": [finding.message for finding in report.findings],
                "fix": [finding.fix for finding in report.findings],
                "severity": [finding.severity.value for finding in report.findings],
                "cost_s": _numbers(costs),
                "cost_kind": [finding.cost_kind.value for finding in report.findings],
                "cost_low_s": _numbers([finding.cost_low_s for finding in report.findings]),
                "cost_high_s": _numbers([finding.cost_high_s for finding in report.findings]),
                "step_share": _numbers(
                    [None if cost is None or not mean else cost / mean for cost in costs]
                ),
                "predicted": _numbers(
                    [
                        finding.predicted.after if finding.predicted else None
                        for finding in report.findings
                    ]
                ),
                "predicted_low": _numbers(
                    [
                        finding.predicted.low if finding.predicted else None
                        for finding in report.findings
                    ]
                ),
                "predicted_high": _numbers(
                    [
                        finding.predicted.high if finding.predicted else None
                        for finding in report.findings
                    ]
                ),
                "place": [finding.place for finding in report.findings],
                "at_most_per_s": _numbers([one.at_most_per_s for one in report.findings]),
                "refused": [finding.refused for finding in report.findings],
                "how_to_check": [finding.how_to_check for finding in report.findings],
                "rank": np.array([_rank(finding) for finding in report.findings], np.int64),
            }
        ]
    )


def _rank(finding: Finding) -> int:
    return -1 if finding.blame is None or finding.blame.rank is None else finding.blame.rank


def _numbers(values: list[float | None]) -> np.ndarray:
    return np.array([np.nan if value is None else value for value in values], np.float64)


def user_code(report: Report) -> "pd.DataFrame":
    """Make the frame of the program's functions and lines."""
    rows = [
        row
        for one in (report.user_code.functions if report.user_code else [])
        for row in _lines_of(one)
    ]
    names = [column.name for column in USER_CODE.columns]
    columns: dict[str, Any] = {name: [row[name] for row in rows] for name in names}
    for column in USER_CODE.columns:
        if column.kind == "number":
            columns[column.name] = _numbers(columns[column.name])
        elif column.kind == "integer":
            columns[column.name] = np.array(columns[column.name], np.int64)
    return USER_CODE.frame([columns])


def _lines_of(one: UserFunction) -> Iterator[dict[str, Any]]:
    """Rows of a function: all of it, then its lines."""
    whole = {name: getattr(one, name) for name in ("kind", "place", "function", "file", "caller")}
    ends = {"low": one.low, "high": one.high}
    per_step = one.seconds_per_step
    library = {"library": one.library}
    yield {**whole, "line": 0, "share": one.share, **ends, "seconds_per_step": per_step, **library}
    for line in one.lines:
        part = None if per_step is None or not one.share else per_step * line.share / one.share
        yield {
            **whole,
            "line": line.line,
            "share": line.share,
            "low": None,
            "high": None,
            "seconds_per_step": part,
            "library": line.library,
        }
