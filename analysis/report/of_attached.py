"""What was seen of a training from outside: read again, and as a document of one screen."""

import dataclasses
import types
import typing
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from feedline.analysis.explain.attached import ATTACHED_SCHEMA, AttachedReport, SampledShare
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
from feedline.analysis.report.json_report import key_of
from feedline.analysis.report.palette import family
from feedline.analysis.text.formatting import counted, percent, seconds
from feedline.profiler.errors import RunDamaged, SchemaTooNew
from feedline.profiler.files.bounded import MOST_JSON, OF_RUN, json_of, one_line, whole
from feedline.profiler.files.checking import checked

ATTACHED_FILE = "attached.json"  # of what ``feedline attach -o FOLDER`` wrote
_SMALL = 0.01  # of the time: rows below it are left out
_TEXT = 32  # characters of a line that are shown
_ROWS, _WORKER_ROWS, _PROCESSES = 6, 3, 8

_LineAt = Callable[[str], str]


def document(report: AttachedReport, line_at: _LineAt) -> Document:
    """Return what was seen.

    Args:
        line_at: returns the text of a line, of its file and number; empty: it is unknown.
    """
    return Document(tuple(_blocks(report, line_at)))


def _blocks(report: AttachedReport, line_at: _LineAt) -> Iterable[Block]:
    yield Title(
        (
            report.name,
            f"process {report.pid}",
            *_workers(report),
            f"seen for {seconds(report.seconds)}",
        )
    )
    yield Headline(report.limit, report.cause)
    if fields := tuple(_advice(report, line_at)):
        yield Fields(fields, indented=True)
    if report.stuck:
        yield _standing(report, line_at)
        return
    if report.sampled.main:
        yield _bars("main process", report.sampled.main, _ROWS)
    if report.sampled.workers:
        yield _bars("workers", report.sampled.workers, _WORKER_ROWS)
    if report.findings[1:]:
        rows = tuple(
            (f"{finding.message}.", *filter(None, (finding.place,)))
            for finding in report.findings[1:]
        )
        yield Table(rows, label="Also")
    yield Note(" ".join(report.refused))


def _workers(report: AttachedReport) -> tuple[str, ...]:
    """Return how many workers there were at once: each epoch may start new ones."""
    seen = [process for process in report.processes if process.name.startswith("worker")]
    if not seen:
        return ()
    at_once = max(1, round(sum(process.seconds for process in seen) / max(report.seconds, 1e-9)))
    if at_once >= len(seen):
        return (counted(len(seen), "worker"),)
    return (f"{counted(at_once, 'worker')}, started again ({len(seen)} seen)",)


def _advice(report: AttachedReport, line_at: _LineAt) -> Iterable[Field]:
    text = line_at(report.place) if report.stuck else ""
    if text:
        yield Field("Line", f"`{_cut(text)}`", report.place)
    if report.fix:
        yield Field("Fix", report.fix, "" if text else report.place)
    for finding in report.findings[:1]:
        for more in finding.fix_more + finding.more * report.stuck:
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


def _standing(report: AttachedReport, line_at: _LineAt) -> Table:
    rows = [
        (process.name, str(process.pid), process.doing) for process in report.processes[:_PROCESSES]
    ]
    left = len(report.processes) - len(rows)
    more = [("", "", f"{left} more", "")] if left else []
    return Table((*rows, *more), ("process", "pid", "last seen", ""))


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT else f"{text[: _TEXT - 1]}…"


def read_attached(folder: Path) -> AttachedReport:
    """Return what was seen.

    Raises:
        RunDamaged: the file is missing, or was changed or damaged.
        SchemaTooNew: a newer feedline wrote it.
    """
    path = folder / ATTACHED_FILE
    try:
        data = json_of(whole(path, MOST_JSON, OF_RUN))
        schema = data.get("schema_version") if isinstance(data, dict) else None
        if isinstance(schema, int) and schema > ATTACHED_SCHEMA:
            raise SchemaTooNew.of(path, schema, ATTACHED_SCHEMA)
        report: AttachedReport = checked(_named(AttachedReport, data), AttachedReport)
    except (OSError, ValueError) as error:
        raise RunDamaged(
            f"{path} cannot be read ({one_line(error)}): attach to the training again"
        ) from error
    return report


def _named(kind: Any, data: Any) -> Any:
    """Return JSON with the names that fields have in dataclasses, and what is unknown in them.

    It is the reverse of ``json_report.plain``; types are not checked.
    """
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        one = next(part for part in inside if part is not types.NoneType)
        return None if data is None else _named(one, data)
    if origin is list and isinstance(data, list):
        return [_named(inside[0], item) for item in data]
    if origin is dict and isinstance(data, dict):
        return {key: _named(inside[1], item) for key, item in data.items()}
    if dataclasses.is_dataclass(kind) and isinstance(kind, type) and isinstance(data, dict):
        hints = typing.get_type_hints(kind)
        return {
            field.name: field.metadata["unknown"]
            if data[key_of(field)] is None and "unknown" in field.metadata
            else _named(hints[field.name], data[key_of(field)])
            for field in dataclasses.fields(kind)
            if key_of(field) in data
        }
    return data
