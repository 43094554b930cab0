"""An interrupt while ``feedline.record`` is entered:

Python does not call ``__exit__`` then, and nothing may go on recording.
"""

import os
import signal
import sys
from types import FrameType
from typing import Any

import pytest

import feedline
from feedline.profiler.record.recorder import recorder
from feedline.profiler.session import api
from feedline.profiler.session.session import Session


def test_right_after_everything_was_attached(tmp_path: Any) -> None:
    """As a signal does that comes in the last instructions of the session's beginning:

    Python raises behind the call.
    """

    def interrupts(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code is not Session.__init__.__code__:
            return None
        if event == "return" and recorder.main is not None:
            sys.settrace(None)
            raise KeyboardInterrupt
        return interrupts

    sys.settrace(interrupts)
    try:
        with pytest.raises(KeyboardInterrupt), feedline.record(tmp_path / "run"):
            pass
    finally:
        sys.settrace(None)

    check(tmp_path / "run")


def test_while_it_says_that_it_records_elsewhere(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").touch()
    monkeypatch.setattr(api, "_report", lambda text: os.kill(os.getpid(), signal.SIGINT))

    with pytest.raises(KeyboardInterrupt), feedline.record(tmp_path / "run"):
        pass

    check(tmp_path / "run-2")


def test_by_a_time_limit_of_the_program(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose handler raises an Exception: it is no failure of feedline's."""

    def is_late(number: int, frame: FrameType | None) -> None:
        raise TimeoutError

    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").touch()
    monkeypatch.setattr(api, "_report", lambda text: os.kill(os.getpid(), signal.SIGUSR1))
    before = signal.signal(signal.SIGUSR1, is_late)
    try:
        with pytest.raises(TimeoutError), feedline.record(tmp_path / "run"):
            pass
    finally:
        signal.signal(signal.SIGUSR1, before)

    assert recorder.main is None and recorder.segment is None
    made = feedline.load(tmp_path / "run-2").report
    assert (made.run.state, made.run.exit_code) == ("finished", 1)


def check(run: Any) -> None:
    assert recorder.main is None and recorder.segment is None
    made = feedline.load(run).report
    assert (made.run.state, made.run.exit_code) == ("finished", 130)
