"""What the windows say of all steps, under a clock that each reading of moves on: recording has a
cost then, and the truth is known.
"""

import pytest
import torch
from recording_schedule.resting import rested
from torch.utils.data import DataLoader, TensorDataset

from feedline.analysis.explain.roofs import roofline
from feedline.analysis.text.formatting import seconds
from feedline.profiler import clock
from feedline.profiler.events import Stage
from feedline.profiler.record.recorder import recorder
from feedline.profiler.taps import recording_schedule
from feedline.profiler.taps.own_code import stretches

READING_NS = 6_000  # of the clock: what a span's own work would take
STALL = 50_000_000
FORWARD, LOGGING = 120_000, 180_000  # every second step logs


class Clock:
    """Wall and CPU time of one thread that never waits."""

    def __init__(self):
        self.now = 1_000_000_000

    def read(self):
        self.now += READING_NS
        return self.now


class Slow(torch.nn.Module):
    def __init__(self, clock, ns):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
        self.clock, self.ns = clock, ns

    def forward(self, x):
        self.clock.now += self.ns
        return self.layer(x)


@pytest.fixture
def ticking(monkeypatch):
    made = Clock()
    monkeypatch.setattr(clock, "wall_ns", made.read)
    monkeypatch.setattr(clock, "cpu_ns", made.read)
    # a look reads the clock twenty times, which takes longer here than looking does
    for name in ("_FIRST_BUDGET", "_LATER_BUDGET", "_MIN_CHANCE"):
        monkeypatch.setattr(stretches, name, 0.0)
    return made


def training(ticking, forward_ns, steps):
    model = Slow(ticking, forward_ns)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def train():
        for number in range(steps):
            loss = model(torch.ones(2, 2)).sum()
            ticking.now += forward_ns
            loss.backward()
            optimizer.step()
            if number % 2 == 0:
                ticking.now += LOGGING

    return train


@pytest.mark.quiet  # beside other tests, threads read the clock that ticks with each reading
def test_shares_are_those_of_the_training_and_not_of_recording_it(recorded, ticking):
    report, main = recorded(training(ticking, FORWARD, 6000))

    own = 2 * FORWARD + LOGGING / 2
    step, sampled = report.step, report.step.sampled
    assert rested(main) > 3000
    assert step.mean_s == pytest.approx(own / 1e9, rel=0.03)
    assert step.stages["forward"] == pytest.approx(FORWARD / 1e9, rel=0.15)
    assert sum(step.stages.values()) == pytest.approx(step.mean_s)
    for stage, truth in (("forward", FORWARD), ("other", LOGGING / 2)):
        assert sampled.share_low[stage] - 0.03 <= truth / own <= sampled.share_high[stage] + 0.03, (
            stage
        )
    assert sampled.recording_s > 5 * READING_NS / 1e9
    assert any("The largest stage" in note for note in report.notes)


def test_rare_long_stalls_between_the_recorded_steps_are_in_no_stage(recorded, ticking):
    """One step in 60 takes 50 ms more, and none of those was recorded: nothing says in which stage
    that was, and no limit contains it.
    """
    stalls = []

    def train():
        model = Slow(ticking, FORWARD)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        for number, (x,) in enumerate(
            DataLoader(TensorDataset(torch.ones(12_000, 2)), batch_size=2)
        ):
            model(x).sum().backward()
            optimizer.step()
            if number % 60 == 0 and recorder.main is None:
                stalls.append(number)
                ticking.now += STALL

    report, main = recorded(train)

    step, sampled = report.step, report.step.sampled
    own = step.mean_s - step.stages["unattributed"]
    assert rested(main) > 3000 and len(stalls) > 30
    assert step.stages["unattributed"] == pytest.approx(len(stalls) * STALL / 6000 / 1e9, rel=0.15)
    assert step.stages["forward"] == pytest.approx(FORWARD / 1e9, rel=0.2)
    assert sum(step.stages.values()) == pytest.approx(step.mean_s)
    assert sampled.share_low["unattributed"] > 0.5
    limits = roofline(report)
    (of_step,) = [roof for roof in limits.roofs if roof.id == "step"]
    assert of_step.samples_per_s >= 2 / own  # what it reaches without the stalls
    assert (
        f"{seconds(step.stages['unattributed'])} in steps that were not recorded in detail"
        in of_step.message
    )
    assert (
        report.findings[0].rule_id == "too_short" and "FEEDLINE_RESTS=0" in report.findings[0].fix
    )
    assert not any(
        "at most" in said or "up to" in said.lower()
        for said in (str(report.verdict), limits.message)
    )


def test_steps_that_are_counted_as_they_are_recorded_have_no_time_outside_the_stages(
    recorded, ticking
):
    report, _ = recorded(training(ticking, FORWARD, 6000))

    assert "unattributed" not in report.step.stages


def test_recording_costs_one_percent_of_short_steps(recorded, ticking):
    before = ticking.now
    _, main = recorded(training(ticking, FORWARD, 6000))

    own = 6000 * (2 * FORWARD + LOGGING / 2)
    assert (ticking.now - before) / own - 1 < 0.015


@pytest.mark.parametrize("switched_off", [False, True])
def test_steps_of_ten_milliseconds_are_all_recorded(recorded, ticking, monkeypatch, switched_off):
    monkeypatch.setenv(recording_schedule._VARIABLE, "0" if switched_off else "1")
    report, main = recorded(training(ticking, FORWARD if switched_off else 5_000_000, 300))

    assert not len(main.of(Stage.REST))
    assert report.throughput.steps == report.throughput.steps_in_detail == 300
    assert report.step.sampled is None
    assert not any("The largest stage" in note for note in report.notes)
