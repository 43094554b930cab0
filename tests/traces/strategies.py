"""Made-up traces for hypothesis: odd names, fractions of microseconds, times as large as those of
today, everything that columns hold.
"""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from hypothesis import strategies as st

from feedline.analysis.traces.trace_columns import (
    DEVICE_WORK,
    EVENT_DTYPE,
    CollectiveArgs,
    Kind,
    Shape,
    Trace,
    Track,
)

ON_STREAMS = (*DEVICE_WORK, Kind.DEVICE_ANNOTATION)
ODD = [
    "",
    " ",
    'say "hi"',
    "a\nb",
    "tab\there",
    "back\\slash",
    'end\\"',
    "}, {",
    '},{"ph":"X"',
    "]}",
    "Грета",
    "学习",
    "😀",
    "\x00\x1f",
    "\u2028",
]
names = st.one_of(
    st.sampled_from(ODD), st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
)
some_text = names.filter(bool)
counts = st.integers(0, 2**40)
sizes = st.lists(st.integers(0, 4096), max_size=3).map(tuple)
origins = st.one_of(st.just(0), st.integers(10**18, 19 * 10**17))

hosts = st.builds(
    Track,
    st.sampled_from(["1", "4037", "-1", "007", "Spans"]),
    st.one_of(st.integers(-5, 5).map(str), names),
    st.just(-1),
    names,
)
streams = st.builds(
    lambda device, stream, name: Track(str(device), str(stream), device, name),
    st.integers(0, 3),
    st.integers(0, 40),
    names,
)


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    inputs = draw(st.lists(sizes, max_size=4))
    return Shape(
        tuple(inputs),
        tuple(draw(st.sampled_from(["float", "c10::Half", "Scalar", ""])) for _ in inputs),
    )


collectives = st.builds(
    CollectiveArgs,
    operation=st.sampled_from(["allreduce", "all_to_allv", "_reduce_scatter_base"]),
    group=st.none() | some_text,
    ranks=st.none()
    | st.lists(st.integers(0, 511), min_size=1, max_size=8, unique=True).map(
        lambda ranks: tuple(sorted(ranks))
    ),
    size=st.none() | counts,
    sequence=st.none() | counts,
    elements_in=st.none() | counts,
    elements_out=st.none() | counts,
    dtype=st.none() | st.sampled_from(["Float", "BFloat16"]),
)


def distinct(values: list[Track]) -> list[Track]:
    """One track a place."""
    return list({(track.process, track.thread, track.device): track for track in values}.values())


@st.composite
def traces(draw: st.DrawFn, most: int = 30) -> Trace:
    """A trace as a reader returns it: ordered, nothing in its lists that no event refers to, in
    Unix time or from some clock's zero.
    """
    origin = draw(origins)
    earliest = 0 if origin else draw(st.integers(0, 10**15))
    threads = distinct(draw(st.lists(hosts, min_size=1, max_size=4)))
    lanes = distinct(draw(st.lists(streams, min_size=1, max_size=4)))
    named = draw(st.lists(names, min_size=1, max_size=6, unique=True))
    shaped, together = draw(st.lists(shapes(), max_size=4)), draw(st.lists(collectives, max_size=4))
    spans = st.integers(0, 10**4) | st.integers(0, 10**10)
    rows = []
    for _ in range(draw(st.integers(1, most))):
        kind = draw(st.sampled_from(Kind))
        on_stream = kind in ON_STREAMS or (kind == Kind.SYNC and draw(st.booleans()))
        row: dict[str, Any] = {
            "kind": kind,
            "start": earliest + draw(spans),
            "wall": draw(spans),
            "name": draw(st.sampled_from(named)),
        }
        row["track"] = draw(st.sampled_from(lanes if on_stream else threads))
        row["correlation"] = draw(st.just(-1) | counts)
        row["nbytes"] = draw(st.just(-1) | counts) if kind in (Kind.COPY, Kind.SET) else -1
        row["shape"] = (
            draw(st.sampled_from(shaped))
            if kind == Kind.OPERATOR and shaped and draw(st.booleans())
            else None
        )
        row["collective"] = (
            draw(st.sampled_from(together))
            if kind in (Kind.KERNEL, Kind.OPERATOR) and together and draw(st.booleans())
            else None
        )
        rows.append(row)
    if origin:
        first = min(row["start"] for row in rows)
        rows = [row | {"start": row["start"] - first} for row in rows]
    return made(
        rows,
        origin_ns=origin,
        rank=draw(st.none() | st.integers(0, 1000)),
        world_size=draw(st.none() | st.integers(1, 1000)),
        groups=draw(
            st.dictionaries(
                some_text,
                st.lists(st.integers(0, 511), min_size=1, max_size=4, unique=True).map(tuple),
                max_size=2,
            )
        ),
        devices=draw(st.dictionaries(st.integers(0, 7), names, max_size=2)),
    )


def made(rows: Sequence[dict[str, Any]], **about: Any) -> Trace:
    """A trace of rows that hold names, tracks, shapes and collectives themselves."""
    orders = {
        "name": str,
        "track": lambda track: (track.device, track.process, track.thread, track.name),
        "shape": lambda shape: (shape.inputs, shape.dtypes),
        "collective": lambda one: [
            (getattr(one, field.name) is not None, getattr(one, field.name))
            for field in fields(one)
        ],
    }
    held = {
        column: sorted({row[column] for row in rows if row[column] is not None}, key=key)
        for column, key in orders.items()
    }
    events = np.zeros(len(rows), EVENT_DTYPE)
    for event, row in zip(events, rows):
        for column, value in row.items():
            event[column] = (
                value if column not in held else -1 if value is None else held[column].index(value)
            )
    order = sorted(
        range(len(rows)),
        key=lambda number: (
            events[number]["start"],
            -events[number]["wall"],
            *(
                int(events[number][name])
                for name in (
                    "track",
                    "name",
                    "kind",
                    "correlation",
                    "nbytes",
                    "shape",
                    "collective",
                )
            ),
        ),
    )
    return Trace(
        source="made.json",
        maker="kineto",
        events=events[order],
        names=held["name"],
        tracks=held["track"],
        shapes=held["shape"],
        collectives=held["collective"],
        **about,
    )


def content(trace: Trace) -> dict[str, Any]:
    """All that two traces must share to be the same, but for the file they came from and what was
    said of it.
    """
    return {
        field.name: trace.events.tolist() if field.name == "events" else getattr(trace, field.name)
        for field in fields(trace)
        if field.name not in ("source", "maker", "notes")
    }
