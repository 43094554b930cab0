"""How often stacks are sampled, for a training whose processes use one CPU each."""

import pytest

from feedline.profiler.stacks import ration
from feedline.profiler.stacks.ration import Ration

COST_S = 0.0004


@pytest.fixture
def busy(monkeypatch):
    """Processes that use all of a CPU."""
    clock = {"now": 0.0}
    monkeypatch.setattr(ration, "_cpu_s", lambda pid: clock["now"])
    return clock


def spends(clock, seconds, *, started_s=0.0, pids=(1,), cost_s=COST_S):
    """CPU seconds that sampling so long takes, its start included."""
    rationed, spent_s, samples = Ration(spent_s=started_s), started_s, 0.0
    for second in range(seconds):
        rationed.measured(samples * cost_s, round(samples))
        interval_s = rationed.interval_s(second, 1.0, list(pids), len(pids))
        clock["now"] += 1.0
        samples = len(pids) / interval_s
        spent_s += samples * cost_s
    return spent_s


def test_the_first_seconds_may_take_more_than_the_rest(busy):
    early, whole = spends(busy, 15), spends(busy, 60)

    assert early == pytest.approx(0.02 * 15, rel=0.1)
    assert whole - early == pytest.approx(0.005 * 45, rel=0.1)


@pytest.mark.parametrize("started_s", [0.0, 0.05, 0.1])
def test_a_minute_takes_less_than_a_hundredth_whatever_the_start_took(busy, started_s):
    assert spends(busy, 60, started_s=started_s) < 0.01 * 60


def test_what_the_start_took_is_given_back_and_never_all_of_the_share(busy):
    long = [spends(busy, 120, started_s=started_s) for started_s in (0.0, 0.1, 5.0)]

    assert long[1] == pytest.approx(long[0], rel=0.03)
    assert long[2] - 5.0 == pytest.approx(0.3 + 0.5 * 0.005 * 105, rel=0.1)


def test_samples_that_cost_more_are_taken_less_often(busy):
    assert spends(busy, 60, cost_s=0.001) == pytest.approx(spends(busy, 60), rel=0.15)


def test_three_processes_share_what_three_cpus_allow(busy):
    assert spends(busy, 60, pids=(1, 2, 3)) == pytest.approx(3 * spends(busy, 60), rel=0.1)


def test_a_given_rate_is_kept_whatever_it_costs():
    rationed = Ration(rate=100.0)
    rationed.measured(10.0, 1)

    assert rationed.interval_s(1.0, 1.0, [1], 1) == 0.01
