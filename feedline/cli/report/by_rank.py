"""The comparison of many ranks as a document: the straggler, the mean step, collectives."""

from collections.abc import Iterable, Sequence

from feedline.analysis.ranks.blame import FEWEST_STEPS, PERSISTENT_SHARE
from feedline.analysis.ranks.communication import SHARES
from feedline.analysis.ranks.many.reduce import Many, RankCost
from feedline.analysis.report import phrases
from feedline.analysis.report.document import Document, Headline, Items, Note, Table
from feedline.analysis.report.figures.step_times import PART_LABELS
from feedline.analysis.text.formatting import (
    BLANK,
    Scale,
    count,
    counted,
    number,
    seconds,
    share,
    size,
)
from feedline.analysis.traces.collectives import UNKNOWN_HOST
from feedline.profiler.printable import printable_in

_MAX_STRAGGLERS = 8  # ranks shown
_MIN_BLAMED_SHARE = 0.01  # of the step, from which on a rank is named


def document_of(many: Many) -> Document:
    """Return the comparison: the verdict, the mean step, stragglers, collectives and notes."""
    many = printable_in(many)
    parts = [name for name in PART_LABELS if many.collectives or name == "compute_s"]
    return Document(
        (
            Headline(*phrases.opening(_verdict(many))),
            Note(_about(many)),
            _step_table(many.ranks, parts),
            *([_straggler_table(many)] if many.late and not _why_unknown(many) else []),
            *([_collective_table(many)] if many.kinds else []),
            *([Items(tuple(many.notes), "Notes")] if many.notes else []),
        )
    )


def _verdict(many: Many) -> str:
    """Return the verdict: which rank the others wait for, and the cost."""
    if many.together is False and len(many.ranks) > 1:
        return (
            "The ranks did not train together: no collective averaged gradients in their "
            "steps, so each trained a model of its own."
        )
    if unknown := _why_unknown(many):
        return f"Whether a rank delays the others is unknown: {unknown}."
    first = next((rank for rank in many.late if rank.step_s), None)
    each = first.caused_s / max(1, len(many.ranks) - 1) if first else 0.0
    if first is None or each < _MIN_BLAMED_SHARE * first.step_s:
        who = "No" if many.together is not None else "In the collectives that were seen, no"
        return f"{who} rank delays the others by more than {share(_MIN_BLAMED_SHARE)} of the step."
    total = sum(rank.caused_s for rank in many.late)
    if first.caused_s < PERSISTENT_SHARE * total:
        shares = ", ".join(
            f"rank {rank.rank} {share(rank.caused_s / total)}" for rank in many.late[:SHARES]
        )
        return (
            f"The slow rank changes. Of the time that ranks wait for others, each causes its "
            f"share: {shares}."
        )
    others = "the other rank waits" if len(many.ranks) == 2 else "each other rank waits"
    return (
        f"Rank {first.rank} ({first.host}) is the straggler: {others} {seconds(each)} per step "
        f"({share(each / first.step_s)})."
    )


def _why_unknown(many: Many) -> str:
    """Say why no waiting of one rank for another can be told; empty if it can, or there is one."""
    if len(many.ranks) < 2:
        return ""
    if many.together is None and not many.collectives:
        return "what they exchange was not seen"
    steps = max(rank.steps for rank in many.ranks)
    if not steps:
        return "no step was recorded"
    if max(rank.counted_steps for rank in many.ranks) < FEWEST_STEPS:
        return f"only {counted(steps, 'step')} {'was' if steps == 1 else 'were'} recorded"
    return "" if many.clock_bound_s is not None else "their clocks cannot be compared"


def _about(many: Many) -> str:
    """Return the numbers of ranks, hosts, steps and collectives."""
    hosts = {rank.host for rank in many.ranks}
    places = "" if UNKNOWN_HOST in hosts else f" on {counted(len(hosts), 'host')}"
    missing = (
        f", {count(many.incomplete)} of them not started by all ranks" if many.incomplete else ""
    )
    steps = max(rank.steps for rank in many.ranks)
    rate = "" if many.samples_per_s is None else f", {number(many.samples_per_s)} samples/s"
    about = (
        f"{count(len(many.ranks))} of {count(many.world_size)} ranks"
        f"{places}, {count(steps)} steps{rate}"
    )
    if not many.collectives:
        return f"{about}, no collectives{'' if many.together is not None else ' seen'}."
    clocks = (
        "The clocks cannot be compared"
        if many.clock_bound_s is None
        else f"Clocks agree within {seconds(many.clock_bound_s)}"
    )
    return f"{about}, {count(many.collectives)} collectives{missing}. {clocks}."


def _figures(title: str, rows: Iterable[tuple[str, ...]], heads: tuple[str, ...]) -> Table:
    """Return a table whose columns are figures, all but the first."""
    return Table(tuple(rows), heads, title, frozenset(range(1, len(heads))))


def _step_table(ranks: Sequence[RankCost], parts: Sequence[str]) -> Table:
    """Return each part of the step: mean, smallest and largest over the ranks."""
    scale = Scale.column(max(rank.step_s for rank in ranks))
    total = sum(rank.step_s for rank in ranks)
    rows = []
    for name, words in [*((name, PART_LABELS[name].short) for name in parts), ("step_s", "step")]:
        values = [getattr(rank, name) for rank in ranks]
        worst = ranks[values.index(max(values))] if max(values) > 0 else None
        rows.append(
            (
                words,
                scale(sum(values) / len(values)),
                share(sum(values) / total) if total else BLANK,
                scale(min(values)),
                scale(max(values)),
                str(worst.rank) if worst else BLANK,
            )
        )
    heads = ("", f"mean {scale.unit}", "of step", "least", "most", "on rank")
    return _figures("Mean step", rows, heads)


def _straggler_table(many: Many) -> Table:
    """Return the ranks that the others waited for, and how long each waited on average."""
    others = max(1, len(many.ranks) - 1)
    rows = []
    for rank in many.late[:_MAX_STRAGGLERS]:
        each = rank.caused_s / others
        of_step = share(each / rank.step_s) if rank.step_s else BLANK
        rows.append((str(rank.rank), rank.host, seconds(rank.caused_s), seconds(each), of_step))
    return _figures("Stragglers", rows, ("rank", "host", "others waited", "each", "of step"))


def _collective_table(many: Many) -> Table:
    """Return the kinds that move most bytes."""
    rows = (
        (
            kind.name,
            size(kind.nbytes),
            count(kind.ranks),
            count(kind.count),
            number(kind.busbw_gbps) if kind.busbw_gbps else BLANK,
        )
        for kind in many.kinds
    )
    return _figures("Collectives", rows, ("collective", "message", "ranks", "count", "busbw GB/s"))
