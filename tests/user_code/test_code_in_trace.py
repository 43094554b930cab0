"""Sampled code in a trace for Perfetto: a track below each process, one slice where it goes on."""

import json

import pytest
from user_code.made_stacks import BACKWARD, FETCHING, IDLE, LOOP, PYTHON, TORCH
from user_code.with_stacks import RUN, WORKER, run_with

from feedline.analysis.report import perfetto_trace
from feedline.profiler.store.run_folder import Run

FORKED = [*LOOP, (TORCH + "utils/data/dataloader.py", 400, "__iter__"), *FETCHING]
SEEN = [
    ("main", [*LOOP, *BACKWARD], 10),
    (WORKER, [*FORKED, ("data.py", 2, "load")], 6),
    (WORKER, [*FETCHING, ("data.py", 3, "load"), (PYTHON + "json/__init__.py", 9, "loads")], 2),
    (WORKER, [*FETCHING, ("data.py", 7, "other")], 2),
    (WORKER, IDLE, 10),
]


@pytest.fixture(scope="module")
def tracks(tmp_path_factory):
    """Name of a track -> its slices."""
    folder = tmp_path_factory.mktemp("traced")
    run = Run.of_folder(run_with(SEEN, folder / "run", stretches=4))
    perfetto_trace.write(run, folder / "one.trace.json")
    events = json.loads((folder / "one.trace.json").read_text())["traceEvents"]
    names = {
        event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"
    }
    slices = {name: [] for name in names.values()}
    for event in events:
        if event["ph"] == "X":
            slices[names[event["tid"]]].append(event)
    return slices


def test_a_function_of_the_loop_is_one_slice_from_its_first_sample_to_its_last(tracks):
    outer, inner, library = tracks["training, sampled code"]

    assert [outer["name"], inner["name"], library["name"]] == ["line 90", "main", "backward"]
    assert outer["ts"] == inner["ts"] and outer["dur"] == inner["dur"]
    assert inner["args"] == {"line": "train.py:70", "samples": 40}
    assert {event["cat"] for event in tracks["training, sampled code"]} == {"sampled"}


def test_functions_of_a_worker_are_as_wide_as_their_shares(tracks):
    name = next(name for name in tracks if "worker 0, sampled code" in name)
    widths = {}
    for event in tracks[name]:
        widths[event["name"]] = widths.get(event["name"], 0.0) + event["dur"]

    assert set(widths) == {"load", "other", "json.loads", "idle"}, "none of the main process's"
    whole = widths["load"] + widths["other"]
    assert widths["idle"] == pytest.approx(whole, rel=1e-3)
    assert widths["load"] / whole == pytest.approx(0.8, abs=1e-3)
    assert widths["json.loads"] / whole == pytest.approx(0.2, abs=1e-3)
    samples = [event["args"]["samples"] for event in tracks[name] if event["name"] == "load"]
    assert sum(samples) == 32


def test_slices_of_a_track_nest(tracks):
    for name, slices in tracks.items():
        if "sampled code" not in name:
            continue
        ends = []
        for event in slices:
            while ends and ends[-1] <= event["ts"] + 1e-3:
                ends.pop()
            assert not ends or event["ts"] + event["dur"] <= ends[-1] + 1e-3, (name, event)
            ends.append(event["ts"] + event["dur"])


def test_a_run_without_stacks_has_no_such_track(tmp_path):
    perfetto_trace.write(Run.of_folder(RUN), tmp_path / "one.trace.json")

    assert "sampled code" not in (tmp_path / "one.trace.json").read_text()
