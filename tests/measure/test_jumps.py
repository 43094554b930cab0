"""Growth in jumps: its size per step, what it comes with, and what is no such growth."""

import numpy as np
import pytest

from feedline.analysis.measure.jumps import Jumps

MB = 1e6
EVERY = 120  # steps
NOTHING = {"epoch": np.zeros(0), "evaluation": np.zeros(0)}


def readings(number=60, apart=23.0):
    """Steps made by each reading."""
    return np.arange(number) * apart + 7.0


def stairs(made, size=40 * MB, every=EVERY, noise=0.1 * MB):
    dice = np.random.default_rng(1)
    return 500 * MB + size * np.floor(made / every) + dice.normal(0, noise, len(made))


def epochs(made, every=EVERY):
    return np.arange(0, made[-1] + every, every)


def test_jumps_at_the_end_of_each_epoch_are_counted_by_epochs():
    made = readings()
    found = Jumps.of(made, stairs(made), {"epoch": epochs(made), "evaluation": np.zeros(0)})

    assert found.at == "epoch" and found.every_steps == EVERY
    assert found.per_step == pytest.approx(40 * MB / EVERY, rel=0.005)
    assert found.interval[0] <= found.per_step <= found.interval[1]


def test_evaluations_that_jumps_come_with_are_told_where_epochs_are_not():
    made = readings()
    events = {"epoch": np.array([0.0]), "evaluation": epochs(made)[1:]}

    assert Jumps.of(made, stairs(made), events).at == "evaluation"


def test_small_changes_between_jumps_are_none_of_them():
    made = readings()
    values = stairs(made)
    values[[7, 22, 23]] += 3 * MB

    found = Jumps.of(made, values, {"epoch": epochs(made)})

    assert found.at == "epoch" and found.per_step == pytest.approx(40 * MB / EVERY, rel=0.01)


def test_jumps_with_nothing_have_their_distance():
    made = readings()
    found = Jumps.of(made, stairs(made), NOTHING)

    assert found.at == "" and found.every_steps == pytest.approx(EVERY, rel=0.05)
    assert found.per_step == pytest.approx(40 * MB / EVERY, rel=0.05)


def test_epochs_of_another_number_are_not_what_jumps_come_with():
    made = readings()

    assert Jumps.of(made, stairs(made), {"epoch": epochs(made, EVERY / 2)}).at == ""


@pytest.mark.parametrize(
    "values",
    [
        500 * MB + MB * readings(),
        500 * MB + np.random.default_rng(2).normal(0, 20 * MB, 60).cumsum(),
        np.where(readings() < 500, 500 * MB, 900 * MB),
        500 * MB + 40 * MB * np.log2(1 + readings()).astype(int),
        np.minimum(stairs(readings()), 620 * MB),
        500 * MB + 100 * MB * (np.arange(60) // 4 % 2) + 0.5 * MB * np.arange(60),
    ],
    ids=["each step", "random", "one", "ever rarer", "an end", "up and down"],
)
def test_other_growth_is_none_in_jumps(values):
    assert Jumps.of(readings(), values, NOTHING) is None


def test_steps_longer_than_the_time_between_readings_are_no_jumps():
    made = np.arange(90) / 3
    values = 500 * MB + 40 * MB * np.floor(made)

    assert Jumps.of(made, values, NOTHING) is None
