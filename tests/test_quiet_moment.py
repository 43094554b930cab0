"""A test that compares times waits for other programs, but not for ever."""

import pytest
import quiet_moment
from quiet_moment import QuietMoment


def looks(monkeypatch: pytest.MonkeyPatch, *percent: float) -> None:
    seen = iter(percent)
    monkeypatch.setattr(quiet_moment.psutil, "cpu_percent", lambda _: next(seen, 100.0))


def test_it_waits_until_the_cpus_are_free(monkeypatch):
    looks(monkeypatch, 90.0, 55.0, 5.0)

    QuietMoment().wait()

    assert quiet_moment.psutil.cpu_percent(0) == 100.0  # three looks were taken


def test_all_waits_together_have_an_end(monkeypatch):
    looks(monkeypatch)
    monkeypatch.setattr(quiet_moment, "FOR_ONE_S", 0.05)
    monkeypatch.setattr(quiet_moment, "LOOK_S", 0.0)
    monkeypatch.setattr(quiet_moment, "FOR_ALL_S", 0.12)
    moment = QuietMoment()

    took_s = [moment.wait() for _ in range(4)]

    assert min(took_s[:2]) >= 0.05 and took_s[3] < 0.05
