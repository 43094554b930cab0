"""What the terminal and the HTML report show of traces, rank by rank."""

from feedline.analysis.explain.model import RankSummary, Report
from feedline.analysis.text.formatting import BLANK, number, seconds

#: (section of a rank, field, head of the column, in the terminal's 80 columns).
_COLUMNS = (
    ("gpu", "span_s", "time", True),
    ("gpu", "idle_pct", "idle %", True),
    ("gpu", "compute_pct", "compute %", True),
    ("gpu", "other_pct", "other %", False),
    ("gpu", "overlap_pct_of_comm", "overlap %", True),
    ("gpu", "exposed_comm_pct", "exposed %", True),
    ("input", "loader_pct", "loader %", False),
    ("input", "stall_pct", "stall %", True),
    ("input", "speedup_ceiling", "without stalls", True),
)


def heads(narrow: bool = False) -> list[str]:
    """Return the heads of the columns after the rank."""
    return [head for _, _, head, fits in _COLUMNS if fits or not narrow]


def rows(report: Report, narrow: bool = False) -> list[tuple[str, list[str]]]:
    """Return the cells of each rank; blank where the trace cannot say."""
    return [
        (rank, [_cell(own, part, name) for part, name, _, fits in _COLUMNS if fits or not narrow])
        for rank, own in report.ranks.items()
    ]


def _cell(own: RankSummary, part: str, name: str) -> str:
    value: float | None = getattr(getattr(own, part), name, None)
    if value is None:
        return BLANK
    return (
        seconds(value)
        if name.endswith("_s")
        else f"{number(value)}×"
        if name == "speedup_ceiling"
        else f"{value:.1f}"
    )


def reasons(report: Report) -> list[str]:
    """Say why cells are blank, each reason once."""
    found: dict[str, list[str]] = {}
    for rank, own in report.ranks.items():
        for part in (own.gpu, own.input):
            for reason in dict.fromkeys(part.reasons.values()) if part else ():
                found.setdefault(reason, []).append(rank)
    several = len(report.ranks) > 1
    return [
        f"{_who(ranks, len(report.ranks))}: {why}" if several else why
        for why, ranks in found.items()
    ]


def _who(ranks: list[str], of: int) -> str:
    if len(ranks) == of:
        return "all ranks"
    return (
        f"rank{'s' if len(ranks) > 1 else ''} "
        f"{', '.join(ranks[:8])}{', ...' if len(ranks) > 8 else ''}"
    )
