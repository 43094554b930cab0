import json

import pytest
from user_code.made_stacks import FETCHING, LOOP, process, stack, training

from feedline.analysis.report.stack_files import collapsed, is_stacks, speedscope

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
