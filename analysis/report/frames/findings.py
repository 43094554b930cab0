"""The frame ``findings``: what limits the training."""

from typing import TYPE_CHECKING

import numpy as np

from feedline.analysis.explain.model import Report
from feedline.analysis.ledger.finding import Finding
from feedline.analysis.report.frames.table import Column, Table

if TYPE_CHECKING:
    import pandas as pd

_NO_COST = "it names no cost in time"
_NO_INTERVAL = "cost_s is not a prediction"
_NOT_PREDICTED = "refused says why it is not predicted"
_NO_RANK = "it does not name one rank"

FINDINGS = Table(
    "findings",
    "One row per finding of the report, most important first. `run.report.findings` has their evidence, too.",
    (
        Column("cause", "text", "", "Stable identifier of the rule that found it: decode_bound, too_few_workers, ..."),
        Column("severity", "text", "", "high, low or info"),
        Column("says", "text", "", "One sentence with the figures"),
        Column("cost_s", "number", "s", "What it costs per step", _NO_COST),
        Column("cost_kind", "text", "", "What cost_s says of the gain: predicted, estimated, at_least, bound or unknown"),
        Column("cost_low_s", "number", "s", "Lower end of the interval of a prediction (95 %)", _NO_INTERVAL),
        Column("cost_high_s", "number", "s", "Its upper end", _NO_INTERVAL),
        Column("step_share", "number", "", "cost_s as a share of the mean step, 0 to 1", _NO_COST),
        Column("fix", "text", "", "What to change"),
        Column("how_to_check", "text", "", "An experiment, and the outcome that would prove this finding wrong"),
        Column("predicted", "number", "samples/s", "Throughput with its fix, as predicted", _NOT_PREDICTED),
        Column("predicted_low", "number", "samples/s", "Lower end of its 95 % interval", _NOT_PREDICTED),
        Column("predicted_high", "number", "samples/s", "Its upper end", _NOT_PREDICTED),
        Column("refused", "text", "", "Why its fix is not predicted; empty where it is"),
        Column("rank", "integer", "", "The rank that the others wait for", _NO_RANK),
    ),
)


def findings(report: Report) -> "pd.DataFrame":
    """The frame."""
    mean = report.step.mean_s if report.step is not None else 0.0
    costs = [one.cost_s if one.cost_s > 0 else None for one in report.findings]
    return FINDINGS.frame(
        [
            {
                "cause": [one.rule_id for one in report.findings],
                "says": [one.message for one in report.findings],
                "fix": [one.fix for one in report.findings],
                "severity": [one.severity.value for one in report.findings],
                "cost_s": _numbers(costs),
                "cost_kind": [one.cost_kind.value for one in report.findings],
                "cost_low_s": _numbers([one.cost_low_s for one in report.findings]),
                "cost_high_s": _numbers([one.cost_high_s for one in report.findings]),
                "step_share": _numbers([None if cost is None or not mean else cost / mean for cost in costs]),
                "predicted": _numbers([one.predicted.after if one.predicted else None for one in report.findings]),
                "predicted_low": _numbers([one.predicted.low if one.predicted else None for one in report.findings]),
                "predicted_high": _numbers([one.predicted.high if one.predicted else None for one in report.findings]),
                "refused": [one.refused for one in report.findings],
                "how_to_check": [one.how_to_check for one in report.findings],
                "rank": np.array([_rank(one) for one in report.findings], np.int64),
            }
        ]
    )


def _rank(one: Finding) -> int:
    return -1 if one.blame is None or one.blame.rank is None else one.blame.rank


def _numbers(values: list[float | None]) -> np.ndarray:
    return np.array([np.nan if value is None else value for value in values], np.float64)
