"""What was seen of a training from outside, as a document of one screen."""

from collections.abc import Iterable

from feedline.analysis.explain.attached import AttachedReport, SampledShare
from feedline.analysis.formatting import percent, seconds
from feedline.analysis.measure.code_places import IDLE
from feedline.analysis.report.document import (
    Bar,
    Bars,
    Block,
    Document,
    Field,
    Fields,
    Headline,
    Note,
    Table,
    Title,
)
from feedline.analysis.report.palette import family

_SMALL = 0.01  # of the time: rows below it are left out
_ROWS, _WORKER_ROWS, _PROCESSES, _LINES = 6, 3, 8, 3


def document(report: AttachedReport) -> Document:
    """Return what was seen."""
    return Document(tuple(_blocks(report)))


def _blocks(report: AttachedReport) -> Iterable[Block]:
    workers = sum(process.name.startswith("worker") for process in report.processes)
    yield Title(
        (
            report.name,
            f"process {report.pid}",
            *((f"{workers} workers" if workers != 1 else "1 worker",) if workers else ()),
            f"seen for {seconds(report.seconds)}",
        )
    )
    yield Headline(report.limit, report.cause)
    if report.fix:
        yield Fields(tuple(_advice(report)), indented=True)
    if report.stuck:
        yield _standing(report)
        return
    if report.sampled.main:
        yield _bars("main process", report.sampled.main, _ROWS)
    if report.sampled.workers:
        yield _bars("workers", report.sampled.workers, _WORKER_ROWS)
    yield Note(" ".join(report.refused))


def _advice(report: AttachedReport) -> Iterable[Field]:
    yield Field("Fix", report.fix, report.place)
    for more in report.findings[0].fix_more + report.findings[0].more * report.stuck:
        yield Field("", f"{more.rstrip('.')}.")


def _bars(name: str, rows: dict[str, SampledShare], most: int) -> Bars:
    shown = [(row, share) for row, share in rows.items() if share.share >= _SMALL][:most]
    return Bars(
        tuple(
            Bar(
                row,
                (percent(share.share), f"{percent(share.low)} to {percent(share.high)}"),
                share.share,
                "rest" if row == IDLE else family(row),
            )
            for row, share in shown
        ),
        (name, "95 % interval"),
    )


def _standing(report: AttachedReport) -> Table:
    rows = [
        (process.name, str(process.pid), process.doing) for process in report.processes[:_PROCESSES]
    ]
    left = len(report.processes) - len(rows)
    more = [("", "", f"{left} more")] if left else []
    return Table((*rows, *more), ("process", "pid", "last seen"))
