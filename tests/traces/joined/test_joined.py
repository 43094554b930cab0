"""A training under ``feedline run --torch-profiler``: what feedline saw and what torch.profiler
saw, in one file on one clock.
"""

import gzip
import json
import shutil
from pathlib import Path

import pytest
from traces.joined.rules import Event, File
from traces.joined.training import BATCH, SAMPLES
from warm_python import WarmPython

from feedline.__main__ import main
from feedline.analysis.report import perfetto_trace
from feedline.analysis.traces.kineto.kineto_reader import read_kineto
from feedline.analysis.traces.windows import _READINGS_NS, _marks_in, _shared_clock, read_windows
from feedline.profiler.clock import MARK
from feedline.profiler.errors import OutputError
from feedline.profiler.store.trainings import open_run

PROGRAM = Path(__file__).with_name("training.py")
ACTIVE, CONVOLUTIONS = 5, 2
LOOSE_NS = 100_000_000  # a bound that a machine under load still keeps


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, warm_python: WarmPython) -> Path:
    folder = tmp_path_factory.mktemp("joined")
    done = warm_python.run(
        "-m",
        "feedline",
        "run",
        "-q",
        "--torch-profiler",
        f"3:{ACTIVE}",
        "-o",
        folder / "run",
        PROGRAM,
        folder=folder,
    )
    assert done.returncode == 0, done.stderr
    return folder / "run"


@pytest.fixture(scope="module")
def file(run: Path) -> File:
    return File(run / "trace.json.gz")


@pytest.fixture(scope="module")
def bound_ns(run: Path) -> float:
    return read_windows(open_run(run)).by_rank[0].clock.clock.bound


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "copy"))


def forwards(file: File) -> list[Event]:
    return [event for event in file.on("training") if event["name"].startswith("forward: ")]


def outside(inner: list[Event], outer: list[Event], slack_ns: float) -> list[Event]:
    """Events that lie in none of others."""
    return [
        one
        for one in inner
        if not any(
            o["begin"] - slack_ns <= one["begin"] and one["end"] <= o["end"] + slack_ns
            for o in outer
        )
    ]


def convolutions(file: File) -> list[Event]:
    return [event for event in file.on("training, operators") if event["name"] == "aten::conv2d"]


def rewritten(path: Path, keep=lambda event: True) -> None:
    """A Kineto file without some of its events."""
    content = json.loads(gzip.decompress(path.read_bytes()))
    content["traceEvents"] = [event for event in content["traceEvents"] if keep(event)]
    path.write_bytes(gzip.compress(json.dumps(content).encode(), 1))


def test_the_file_keeps_the_rules_of_its_format(file):
    assert file.broken() == []


def test_the_rules_would_tell_events_that_overlap(run, tmp_path):
    content = json.loads(gzip.decompress((run / "trace.json.gz").read_bytes()))
    for event in content["traceEvents"]:
        if event["ph"] == "X":
            event["tid"] = 1
    (tmp_path / "flat.json").write_text(json.dumps(content))

    assert File(tmp_path / "flat.json").broken() != []


def test_what_both_saw_is_in_it(file):
    assert len(file.on("steps")) == SAMPLES // BATCH
    assert (
        len([event for event in file.on("loader 0 worker") if event["name"] == "fetch"])
        == SAMPLES // BATCH
    )
    assert len(convolutions(file)) == ACTIVE * CONVOLUTIONS
    assert (
        len({event["name"] for event in file.spans if event["name"].startswith("ProfilerStep#")})
        == ACTIVE
    )


def test_the_operators_of_a_forward_lie_in_feedlines_span_of_it(file, bound_ns):
    assert outside(convolutions(file), forwards(file), bound_ns) == []


def test_they_would_not_on_a_clock_that_is_wrong_by_a_few_milliseconds(file, bound_ns):
    longest = max(event["end"] - event["begin"] for event in forwards(file))
    moved = [
        {**event, "begin": event["begin"] + longest, "end": event["end"] + longest}
        for event in convolutions(file)
    ]

    assert outside(moved, forwards(file), bound_ns) != []


def test_an_optimizer_step_lies_in_torchs_annotation_of_it(file, bound_ns):
    annotations = [
        event
        for event in file.on("training, operators")
        if event["name"].startswith("Optimizer.step#")
    ]
    first, last = (
        min(event["begin"] for event in annotations),
        max(event["end"] for event in annotations),
    )
    steps = [
        e
        for e in file.on("training")
        if e["name"] == "optimizer: SGD" and first <= e["begin"] and e["end"] <= last
    ]

    assert len(annotations) == ACTIVE and len(steps) >= ACTIVE - 1
    assert outside(steps, annotations, bound_ns) == []


def test_while_the_training_waited_a_worker_was_making_a_batch(file):
    waits = [
        event
        for event in file.on("training, operators")
        if event["name"].startswith("enumerate(DataLoader)")
    ]
    fetches = [event for event in file.on("loader 0 worker") if event["name"] == "fetch"]
    shared = [min(w["end"], f["end"]) - max(w["begin"], f["begin"]) for w in waits for f in fetches]

    waited = sum(event["end"] - event["begin"] for event in waits)
    assert waited > 0
    assert sum(ns for ns in shared if ns > 0) > waited / 2


def test_the_marks_of_the_clock_are_not_shown(file):
    assert [event["name"] for event in file.spans if event["name"].startswith(MARK)] == []


def test_the_bound_is_said_in_the_report_and_in_the_file(run, file, bound_ns):
    notes = json.loads((run / "report.json").read_text())["notes"]
    (said,) = (note for note in notes if "feedline's clock" in note)

    assert 0 < bound_ns < LOOSE_NS
    assert f"within {bound_ns / 1000:.1f} µs (" in said
    assert file.whole["otherData"]["feedline"]["clocks"] == [said]


def test_the_marks_and_the_runs_own_readings_agree(run):
    opened = open_run(run).ranks[0]
    trace = read_kineto(str(opened.folder / "kineto.json.gz"))
    by_marks = _shared_clock(trace, opened.manifest.anchors)
    rows, _ = _marks_in(trace)
    trace.events["name"][rows] = trace.events["name"][0]
    by_readings = _shared_clock(trace, opened.manifest.anchors)

    assert (by_marks.marks, by_readings.marks) == (len(rows), 0)
    assert (
        abs(int(by_marks.clock.offset[0]) - int(by_readings.clock.offset[0]))
        < by_readings.clock.bound + by_marks.clock.bound
    )


def test_a_trace_without_marks_is_joined_by_the_runs_own_readings(copy, tmp_path):
    rewritten(
        copy / "rank0" / "kineto.json.gz", lambda event: not str(event.get("name")).startswith(MARK)
    )
    found = read_windows(open_run(copy))
    perfetto_trace.write(open_run(copy), tmp_path / "trace.json.gz", found)
    file = File(tmp_path / "trace.json.gz")

    assert "within about 10." in found.notes[0] and "no clock marks" in found.notes[0]
    assert file.broken() == []
    assert outside(convolutions(file), forwards(file), _READINGS_NS) == []


def test_report_into_a_file_of_ones_own_joins_too_and_says_how_well(run, tmp_path, capsys):
    assert main(["report", str(run), "-o", str(tmp_path / "x.trace.json.gz")]) == 0

    assert "is aligned with feedline's clock to within" in capsys.readouterr().err
    assert (tmp_path / "x.trace.json.gz").read_bytes() == (run / "trace.json.gz").read_bytes()


def test_a_report_without_a_trace_does_not_read_one(copy, tmp_path):
    (copy / "rank0" / "kineto.json.gz").write_bytes(b"no gzip")
    assert main(["report", str(copy), "-q", "-o", str(tmp_path / "report.json")]) == 0

    notes = json.loads((tmp_path / "report.json").read_text())["notes"]
    assert not any("Perfetto" in note for note in notes)


@pytest.mark.parametrize(
    "content",
    [b"", b"no gzip", gzip.compress(b'{"traceEvents": []}'), gzip.compress(b"[1, 2")],
    ids=["nothing", "no gzip", "no event", "no trace"],
)
def test_a_damaged_trace_is_named_and_the_rest_is_written(copy, tmp_path, content):
    (copy / "rank0" / "kineto.json.gz").write_bytes(content)
    (copy / "trace.json.gz").unlink()

    assert main(["report", str(copy), "-q", "-f"]) == 0

    notes = json.loads((copy / "report.json").read_text())["notes"]
    assert any(
        "the window of torch.profiler is missing from the Perfetto trace" in note
        and "kineto.json.gz" in note
        for note in notes
    )
    file = File(copy / "trace.json.gz")
    assert file.broken() == [] and len(forwards(file)) == SAMPLES // BATCH
    assert file.on("training, operators") == []


def test_of_a_trace_that_was_cut_the_beginning_is_joined_and_the_report_says_so(copy):
    path = copy / "rank0" / "kineto.json.gz"
    text = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(text[: len(text) // 2]))

    assert main(["report", str(copy), "-q", "-f"]) == 0

    notes = json.loads((copy / "report.json").read_text())["notes"]
    assert any("kineto.json.gz: the trace is truncated" in note for note in notes)
    file = File(copy / "trace.json.gz")
    assert file.broken() == [] and file.on("training, operators") != []


def test_a_full_disk_leaves_no_half_of_a_trace(run, tmp_path, monkeypatch):
    def fails(*_):
        yield "{}"
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(perfetto_trace, "_lines_of", fails)
    with pytest.raises(OutputError, match="No space left on device"):
        perfetto_trace.write(open_run(run), tmp_path / "trace.json.gz")
    assert list(tmp_path.iterdir()) == []
