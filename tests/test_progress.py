"""How long a command takes is said beforehand and while it works: a bar on a terminal, lines in a log."""

import os
import pty
import sys

import pytest

from feedline.cli import outputs, unfinished
from feedline.cli.unfinished import Remaining

LONG = """\
import time
from feedline.cli.outputs import progress_bar

with progress_bar(False, "starting") as tell:
    for number in range(3):
        tell("opencv: round 1 of 9", number, 3)
        time.sleep(0.15)
"""


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test sets."""
    times = [100.0]
    monkeypatch.setattr(unfinished.time, "monotonic", lambda: times[-1])
    return times


def test_the_time_left_is_that_of_the_runs_that_were_made(clock):
    left = Remaining(6)
    assert str(left) == "" and left.seconds is None

    for took_s in (20.0, 40.0):
        left.begin()
        clock.append(clock[-1] + took_s)
        left.end()

    assert left.seconds == 4 * 30.0
    assert str(left) == ", about 2 min 00 s left"


def test_before_the_first_run_it_is_what_was_known_and_a_kept_run_counts_for_nothing(clock):
    left = Remaining(4, each_s=15.0)
    assert str(left) == ", about 60 s left"

    left.end(made=False)

    assert left.seconds == 45.0


def test_runs_that_are_expected_to_differ_count_for_as_much_as_they_take(clock):
    left = Remaining(3, expected=[150.0, 10.0, 40.0])
    assert left.seconds == 200.0

    left.begin()
    clock.append(clock[-1] + 300.0)  # twice as long as expected
    left.end()

    assert left.seconds == 100.0


def test_hardly_any_time_is_not_worth_a_word(clock):
    assert str(Remaining(3, each_s=1.0)) == ""


@pytest.mark.parametrize(
    ("every_s", "quiet", "lines"), [(0.0, False, 2), (60.0, False, 0), (0.0, True, 0)]
)
def test_a_log_has_a_line_now_and_then(monkeypatch, capsys, every_s, quiet, lines):
    monkeypatch.setattr(outputs, "_LOG_EVERY_S", every_s)

    with outputs.progress_bar(quiet, "starting") as tell:
        tell("pillow-v1: one epoch", 1, 12)
        tell("pillow-v1: images", 2, 12)

    said = capsys.readouterr().err.splitlines()
    assert len(said) == lines
    assert not lines or said[0] == "feedline: pillow-v1: one epoch (1/12)"


def test_a_terminal_has_a_bar_that_goes_away(tmp_path):
    (tmp_path / "long.py").write_text(LONG)
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm"
        os.execv(sys.executable, [sys.executable, str(tmp_path / "long.py")])
    shown = b""
    while True:
        try:
            read = os.read(terminal, 4096)
        except OSError:  # its end is closed
            break
        if not read:
            break
        shown += read
    os.close(terminal)

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert b"opencv: round 1 of 9" in shown and b"feedline:" not in shown
    assert shown.rstrip().endswith(b"\x1b[2K") or b"\x1b[1A" in shown
