"""What the trace for Perfetto says of records, and which of them it draws."""

import json
from pathlib import Path

import pytest
from measure.made_up_records import MadeUp

from feedline.analysis.report import perfetto_trace
from feedline.profiler.events import Stage
from feedline.profiler.store.manifest import Manifest
from feedline.profiler.store.run_folder import Rank, Run, Slice

END = 2000
UNITS = {"bytes", "cpu_us", "objects collected"}


def drawn(main: MadeUp, folder: Path) -> list[dict]:
    """The slices of a run of one process with these records, until 2000 ns."""
    anchors = [{"time_ns": at, "perf_counter_ns": at} for at in (0, END)]
    rank = Rank(
        folder,
        0,
        0,
        Manifest(anchors=anchors, ended=True),
        [],
        Slice(0, END, [main.process()]),
    )
    perfetto_trace.write(Run(folder, {0: rank}, []), folder / "one.trace.json")
    events = json.loads((folder / "one.trace.json").read_text())["traceEvents"]
    return [event for event in events if event["ph"] == "X"]


def test_steps_that_were_only_counted_lengthen_none_and_count_in_the_numbers(tmp_path):
    """Two steps of 100 ns, then 18 that were counted, then another one."""
    main = MadeUp()
    for at in (0, 100, 1900):
        main.next(at, at + 10).forward(at + 10, at + 30).backward(at + 30, at + 65)
        main.update(at + 65, at + 95)
    main.span(Stage.REST, 195, 1900, extra=18)

    steps = [
        (event["name"], event["dur"])
        for event in drawn(main, tmp_path)
        if event["name"].startswith("step ")
    ]

    assert [name for name, _ in steps] == ["step 0", "step 1", "step 20"]
    assert all(us <= 0.1 for _, us in steps)


@pytest.mark.parametrize(
    ("stage", "fields", "said"),
    [
        (Stage.GARBAGE, {"cpu": 48_000, "nbytes": 1, "extra": 1}, {"objects collected": 48_000}),
        (Stage.SAMPLE, {"cpu": 500, "nbytes": 1, "extra": 1}, {"cpu_us": 0.5}),
        (Stage.READ, {"cpu": 500, "nbytes": 70}, {"bytes": 70, "cpu_us": 0.5}),
        (Stage.REST, {"cpu": 500, "extra": 18}, {}),
    ],
)
def test_a_record_says_bytes_and_cpu_time_only_where_it_holds_them(stage, fields, said, tmp_path):
    (event,) = drawn(MadeUp().span(stage, 0, 1000, **fields), tmp_path)

    told = {name: event.get("args", {}).get(name) for name in said}
    assert told == said and not (UNITS - {*said}) & {*event.get("args", {})}


@pytest.mark.parametrize(
    "stage", [Stage.TAKEN, Stage.WOKEN, Stage.SUMS, Stage.KEPT, Stage.BEGUN, Stage.LOOK]
)
def test_what_is_no_span_is_not_drawn(stage, tmp_path):
    assert drawn(MadeUp().span(stage, 0, 1000, extra=1), tmp_path) == []
