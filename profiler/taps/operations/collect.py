"""Records one call in detail outside of a training, for self-tests."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from feedline.profiler.events import Stage
from feedline.profiler.record.detail import detail


class Written(NamedTuple):
    """A span as a tap wrote it."""

    stage: Stage
    name: str
    start_ns: int
    wall_ns: int
    cpu_ns: int
    runqueue_ns: int
    nbytes: int
    extra: int


def collect(action: Callable[[], Any]) -> list[Written]:
    """The spans that the taps write during ``action()``, in order of their end."""
    spans: list[Written] = []
    before, detail.write = detail.write, lambda *fields: spans.append(Written(*fields))
    try:
        action()
    finally:
        detail.write = before
    return spans


def missing(spans: Iterable[Written], *expected: tuple[Stage, str]) -> str | None:
    """The expected (stage, name) that are missing, as text; None if none is."""
    there = {(span.stage, span.name) for span in spans}
    absent = [f"{stage.name.lower()} {name}" for stage, name in expected if (stage, name) not in there]
    return f"no span of {', '.join(absent)}" if absent else None
