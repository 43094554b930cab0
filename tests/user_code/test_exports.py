"""Sampled stacks as files for speedscope and flame graphs."""

import json
import shutil
from pathlib import Path

import pytest
from user_code.made_stacks import FETCHING, LOOP, process, stack, training

from feedline.__main__ import main
from feedline.analysis.explain.reports_of_run import of_process
from feedline.analysis.report.stack_files import collapsed, is_stacks, speedscope
from feedline.profiler.stacks.helper import _StackLog
from feedline.profiler.stacks.thread_stacks import Place
from feedline.profiler.store.trainings import open_run

GOLDEN = Path(__file__).parents[1] / "golden" / "runs"

WORKER = process("worker", stack([*FETCHING, ("data.py", 88, "tokenize")], 30))


def test_collapsed_stacks_have_a_line_for_each_with_its_milliseconds():
    lines = collapsed([("worker 0", WORKER)]).splitlines()

    assert len(lines) == 1
    assert lines[0].startswith("worker 0;main;run (")
    assert lines[0].endswith("tokenize (data.py:88) 300")


def test_speedscope_shares_frames_and_weighs_stacks_in_seconds():
    file = json.loads(speedscope([("main", training(stack(LOOP, 10))), ("w", WORKER)], "run"))

    first, last = file["profiles"]
    frames = file["shared"]["frames"]
    assert first["endValue"] == pytest.approx(3.3)
    assert sum(last["weights"]) == pytest.approx(0.3)
    assert frames[last["samples"][0][-1]] == {"name": "tokenize", "file": "data.py", "line": 88}
    assert len(frames) == len({json.dumps(frame) for frame in frames})


@pytest.mark.parametrize(
    ("name", "asks"),
    [("a.speedscope.json", True), ("a.collapsed", True), ("a.json", False), ("a.txt", False)],
)
def test_the_ending_of_a_file_asks_for_stacks(name, asks, tmp_path):
    assert is_stacks(tmp_path / name) is asks


def test_the_stacks_of_one_training_of_a_process_are_only_its(tmp_path):
    """--part chooses one of several that it ran one after another."""
    run = tmp_path / "sweep"
    shutil.copytree(GOLDEN / "sweep", run)
    log = _StackLog(run / "rank0")
    main_process = log.process("main", 12)
    for number, part in enumerate(of_process(open_run(run), None)):
        begin = part.ranks[0].slice.begin
        place = Place("/data/train.py", f"training_{number}", 7)
        log.add(main_process, "main", (place,), 1_000_000, begin + 1_000_000)
        log.group(begin, begin + 2_000_000)
    log.end()

    for words, seen in ((["--part", "2"], [False, True]), ([], [True, True])):
        file = tmp_path / f"{len(words)}.collapsed"
        assert main(["report", str(run), *words, "-o", str(file)]) == 0
        assert [f"training_{number}" in file.read_text() for number in range(2)] == seen
