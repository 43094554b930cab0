"""What changes make of a made-up training's rate."""

import math
import random
from dataclasses import replace
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as settings_of_hypothesis
from hypothesis import strategies as st

from feedline.analysis.ledger.finding import Change, Factor, PredictedRate, Refused
from feedline.analysis.predict.loader_replay import NOTHING, Setting, Task
from feedline.analysis.predict.recorded_input import RecordedInput, Shares
from feedline.analysis.predict.replay_of import (
    _MODEL_ERROR,
    _REMOVAL_ERROR,
    _median,
    _with_change,
    predict,
)
from feedline.analysis.predict.starts import Starts

MS = 1e-3
GONE = Factor(0.0, 0.0)
LONG = Starts(
    counted=0,
    per_pass=4000,
    to_its_end=False,
    each=NOTHING,
    births=NOTHING,
    reset_s=0.0,
    ending_s=0.0,
)
SHORT = Starts(
    counted=9,
    per_pass=20,
    to_its_end=True,
    each=Task(5 * MS, 0),
    births=Task(20 * MS, 0),
    reset_s=1 * MS,
    ending_s=10 * MS,
)


def training(
    *,
    cpu: float = 20,
    off: float = 0,
    own: float = 5,
    workers: int = 1,
    rate: float | None = None,
    **more: Any,
) -> RecordedInput:
    """Batches of 8 samples, all alike, on two CPUs; times in ms.

    The rate is what the replay says unless it is given.
    """
    made = RecordedInput(
        **{
            "setting": Setting(workers),
            "persistent": False,
            "others_set": {"batch_size": 8, "pin_memory": False},
            "batches": [Task(cpu * MS, off * MS)] * 40,
            "steps": [Task(own * MS, 0.0)] * 40,
            "receiving": NOTHING,
            "handing_over": NOTHING,
            "sharing_s": 0.0,
            "freeing_s": 0.0,
            "freed_s": 0.0,
            "sending": 0.0,
            "starts": LONG,
            "making": {
                "decode": Shares(0.6, 0.0),
                "read": Shares(0.1, 1.0),
                "dataset": Shares(0.3, 0.0),
            },
            "own": {"forward": 0.4, "backward": 0.6},
            "helpers": 1.0,
            "cpus": 2.0,
            "others": 0.0,
            "disk": None,
            "samples_per_batch": 8.0,
            "samples_per_s": 1.0,
            **more,
        }
    )
    return replace(made, samples_per_s=8 * made.batches_per_s(400) if rate is None else rate)


def gain(recorded: RecordedInput, change: Change) -> float:
    predicted = predict(recorded, change)
    assert isinstance(predicted, PredictedRate), predicted
    assert predicted.before == recorded.samples_per_s
    assert predicted.low < predicted.after < predicted.high
    return predicted.after / predicted.before


def removing(gain: float) -> float:
    """The prediction where this gain is replayed, and all of it is work that falls away."""
    return gain * math.exp(
        _median(*(math.hypot(_MODEL_ERROR, error * math.log(gain)) for error in _REMOVAL_ERROR))
    )


def reason(recorded: RecordedInput, change: Change) -> str:
    refused = predict(recorded, change)
    assert isinstance(refused, Refused)
    assert refused.message
    return refused.reason


def settings(**given: int | bool) -> Change:
    return Change(given)


def test_no_change_predicts_the_rate_that_was_measured():
    recorded = training()

    for change in (Change(), settings(num_workers=1, pin_memory=False), Change(cpus=2.0)):
        assert predict(recorded, change) == PredictedRate(*[recorded.samples_per_s] * 4)


def test_a_second_worker_doubles_the_rate_until_the_cpus_are_full():
    assert gain(training(cpu=1, off=40), settings(num_workers=2)) == pytest.approx(2, rel=0.05)
    assert gain(training(cpu=20, own=20), settings(num_workers=2)) == pytest.approx(1, rel=0.05)


def test_without_workers_making_and_computing_take_turns():
    assert gain(training(cpu=20, own=20), settings(num_workers=0)) == pytest.approx(0.5, rel=0.05)


def test_without_workers_the_sampler_draws_as_long_as_before():
    """With them, what it takes is a part of what receiving takes."""
    recorded = training(cpu=1, own=5, receiving=Task(7 * MS, 0.0), drawing_s=7 * MS)

    assert gain(recorded, settings(num_workers=0)) == pytest.approx(12 / 13, rel=0.05)
    assert gain(recorded, settings(num_workers=2)) == pytest.approx(1, rel=0.05)


def test_how_much_longer_all_takes_because_workers_wake_the_training_is_between_two_bounds():
    """A step of a millisecond with a worker was measured as 4.9 times as fast without it."""
    recorded = training(cpu=0.2, own=0.4, receiving=Task(0.8 * MS, 0), woken_s=0.5 * MS)

    predicted = predict(recorded, settings(num_workers=0))

    assert isinstance(predicted, PredictedRate)
    assert (
        predicted.low
        < predicted.before * 1.2 / 0.6
        < predicted.after
        < predicted.before * 1.2 / 0.3
        < predicted.high
    )


def test_long_steps_do_not_get_shorter_because_nothing_wakes_them():
    recorded = training(cpu=20, own=20, receiving=Task(0.8 * MS, 0), woken_s=0.5 * MS)

    assert gain(recorded, settings(num_workers=0)) == pytest.approx(0.52, rel=0.02)


@settings_of_hypothesis(deadline=None, max_examples=25)
@given(
    st.floats(1, 60),
    st.floats(0, 60),
    st.floats(1, 20),
    st.sampled_from([0, 1, 2]),
    st.floats(0.0, 1.0),
)
def test_no_change_of_the_input_is_predicted_to_give_more_than_no_input(
    cpu, off, own, workers, left
):
    recorded = training(cpu=cpu, off=off, own=own, workers=workers)
    stages = dict.fromkeys(recorded.making, Factor(left, left))

    predicted = predict(recorded, Change(stages=stages))

    assert isinstance(predicted, PredictedRate)
    most = 8 / (own * MS) / predicted.before
    unsure = math.hypot(_MODEL_ERROR, _REMOVAL_ERROR[0] * abs(math.log(most)))
    assert predicted.high <= max(
        predicted.after, predicted.before * most * math.exp(1.97 * unsure) * 1.02
    )


def test_what_receiving_a_batch_would_take_without_workers_is_between_two_bounds_and_so_is_the_rate():
    recorded = training(
        cpu=10, own=10, workers=0, receiving_bounds=(Task(1 * MS, 0), Task(8 * MS, 0))
    )

    predicted = predict(recorded, settings(num_workers=1))

    assert isinstance(predicted, PredictedRate)
    assert (
        predicted.low
        < predicted.before * 20 / 18
        < predicted.after
        < predicted.before * 20 / 11
        < predicted.high
    )


def test_a_stage_that_is_gone_takes_its_share_with_it():
    assert gain(training(), Change(stages={"decode": GONE})) == pytest.approx(
        removing(1 / 0.4), rel=0.05
    )
    assert gain(training(off=20), Change(stages={"read": Factor(1, 0)})) == pytest.approx(
        removing(2), rel=0.05
    )
    assert gain(
        training(cpu=1, own=50), Change(stages={"backward": Factor(0.5, 0.5)})
    ) == pytest.approx(removing(1 / 0.7), rel=0.05)


@pytest.mark.parametrize(
    ("part", "times"),
    [(0.76, 6.92), (0.595, 3.62), (0.951, 52.8), (0.485, 2.55), (0.291, 1.63)],
    ids=["a figure", "collections", "a collection in each step", "TensorBoard", "a log"],
)
def test_what_is_left_of_a_step_takes_less_than_it_seemed_as_was_measured(part, times):
    """Of planted faults, the part of the step, and the gain of the twin (docs/measured/faults.md).

    The input took at most 7 % of their steps. All gained more than the rows leave.
    """
    recorded = training(cpu=1, own=50, workers=2, cpus=16.0)
    recorded = replace(recorded, own={"other": part, "forward": 1 - part})

    predicted = predict(recorded, Change(stages={"other": GONE}))

    assert isinstance(predicted, PredictedRate)
    assert 1 / (1 - part) < times
    assert predicted.low < times * predicted.before < predicted.high


def test_where_work_falls_away_the_prediction_is_the_median_of_where_the_rate_may_lie():
    below, above, draws = 0.1, 0.3, random.Random(1)
    sides = draws.choices((-below, above), weights=(below, above), k=20_000)
    halves = [side * abs(draws.gauss(0, 1)) for side in sides]

    assert median(halves) == pytest.approx(_median(below, above), abs=0.01)
    assert _median(below, below) == pytest.approx(0)


def test_objects_that_are_not_pickled_free_both_ends_of_the_queue():
    recorded = training(cpu=1, own=1, receiving=Task(20 * MS, 0), handing_over=Task(20 * MS, 0))

    assert gain(recorded, Change(stages={"transport": Factor(0.1, 0.1)})) == pytest.approx(
        removing(21 / 3), rel=0.05
    )


def test_arrays_that_are_not_pickled_have_to_be_put_into_shared_memory():
    recorded = training(
        cpu=1, own=1, receiving=Task(20 * MS, 0), handing_over=Task(20 * MS, 0), sharing_s=9 * MS
    )

    assert gain(recorded, Change(stages={"transport": GONE}, into_shared=True)) == pytest.approx(
        removing(21 / 10), rel=0.05
    )
    assert gain(recorded, Change(stages={"transport": GONE})) > 15


def test_shared_memory_has_to_be_given_back_by_the_main_process():
    recorded = training(cpu=1, own=1, receiving=Task(20 * MS, 0), freeing_s=9 * MS)

    assert gain(recorded, Change(stages={"transport": GONE}, into_shared=True)) == pytest.approx(
        removing(21 / 10), rel=0.05
    )
    assert gain(recorded, Change(stages={"transport": GONE})) > 15


def test_without_workers_no_shared_memory_is_made_or_given_back():
    recorded = training(cpu=1, own=10, handing_over=Task(9 * MS, 0), freed_s=5 * MS)

    assert _with_change(recorded, settings(num_workers=0)).batches_per_s(40) == pytest.approx(
        1000 / 6, rel=0.05
    )
    assert _with_change(recorded, settings(num_workers=2)).batches_per_s(40) == pytest.approx(
        1000 / 10, rel=0.05
    )


def test_what_starting_workers_makes_the_steps_take_longer_ends_with_it():
    recorded = training(own=0.01, starts=replace(SHORT, main_s=100 * MS))

    spares = gain(recorded, settings(persistent_workers=True))

    assert spares == pytest.approx((20 * 20 + 5 + 20 + 10 + 100) / (20 * 20 + 1), rel=0.03)


def test_fewer_cpus_and_more_of_them():
    recorded = training(workers=4, own=0.01)

    assert gain(recorded, Change(cpus=1.0)) == pytest.approx(0.5, rel=0.05)
    assert gain(recorded, Change(cpus=4.0)) == pytest.approx(2, rel=0.05)


def test_other_programs_that_stop_leave_their_share():
    assert gain(training(workers=2, own=0.01, others=1.0), Change(others=False)) == pytest.approx(
        1.5, rel=0.05
    )


def test_programs_of_a_higher_priority_keep_their_cpus_from_more_workers():
    recorded = training(workers=1, own=5, kept=1.0)

    assert gain(recorded, Change({"num_workers": 4})) == pytest.approx(1.0, rel=0.02)
    assert gain(recorded, Change(others=False)) == pytest.approx(1.25, rel=0.02)
    shared = training(workers=1, own=5, others=1.0)
    assert gain(shared, Change({"num_workers": 4})) > 1.2
    # of half the CPUs, they keep half as much
    assert gain(recorded, Change(cpus=1.0)) == pytest.approx(0.5, rel=0.05)


def test_helper_threads_that_stop_leave_their_cpus_or_their_work():
    recorded = training(
        workers=2, own=0.01, batches=[Task(40 * MS, 0.0, threads=2.0)] * 40, helpers=2.0
    )

    predicted = predict(recorded, Change(helper_threads=False))

    assert isinstance(predicted, PredictedRate)
    assert (
        predicted.low < predicted.before < predicted.after < 2 * predicted.before < predicted.high
    )


def test_workers_that_stay_spare_a_start_for_each_pass():
    spares = gain(training(own=0.01, starts=SHORT), settings(persistent_workers=True))

    assert spares == pytest.approx((20 * 20 + 5 + 20 + 10) / (20 * 20 + 1), rel=0.02)


def test_sparing_slow_starts_is_predicted_no_less_surely_than_sparing_quicker_ones():
    widths = []
    for birth_ms in (500, 5_000):
        starts = replace(SHORT, births=Task(birth_ms * MS, 0))
        predicted = predict(
            training(cpu=2, own=0.01, starts=starts), settings(persistent_workers=True)
        )
        assert isinstance(predicted, PredictedRate)
        widths.append(predicted.high / predicted.low)

    assert widths[1] == pytest.approx(widths[0], rel=0.05)
    assert widths[1] < 2.5


def test_a_stage_that_falls_away_with_the_starts_hardly_widens_what_they_gain():
    slow = training(cpu=2, own=0.01, starts=replace(SHORT, births=Task(5_000 * MS, 0)))
    with_less = Change({"persistent_workers": True}, {"decode": Factor(0.9, 0.9)})

    alone, joined = (
        predict(slow, change) for change in (settings(persistent_workers=True), with_less)
    )

    assert isinstance(alone, PredictedRate) and isinstance(joined, PredictedRate)
    assert joined.after / alone.after == pytest.approx(1 / (1 - 0.6 * 0.1), rel=0.05)
    assert joined.high / joined.low == pytest.approx(alone.high / alone.low, rel=0.1)


def test_what_starts_gain_is_less_certain_if_all_batches_are_first_ones_of_a_worker():
    starts = replace(SHORT, births=Task(5_000 * MS, 0))
    known, unknown = (
        predict(
            training(cpu=2, own=0.01, workers=workers, starts=starts),
            settings(persistent_workers=True),
        )
        for workers in (2, 8)
    )

    assert isinstance(known, PredictedRate) and isinstance(unknown, PredictedRate)
    assert unknown.high / unknown.low > 2 * known.high / known.low


def test_a_sending_thread_waits_less_for_pythons_lock_where_making_takes_less():
    recorded = training(cpu=100, own=0.01, workers=2, receiving=Task(0, 30 * MS))

    assert gain(recorded, Change(stages={"decode": GONE})) == pytest.approx(
        removing(1 / 0.4), rel=0.05
    )  # 1.67 if it waited as long
    assert gain(recorded, Change(stages={"decode": Factor(cpu=2.0)})) == pytest.approx(
        1 / 1.6, rel=0.1
    )
    assert gain(recorded, Change(cpus=4.0)) == pytest.approx(1, rel=0.05)


def test_a_slow_batch_holds_nobody_up_out_of_order():
    slow = [Task(0.0, (400 if number % 20 == 0 else 20) * MS) for number in range(100)]

    assert gain(training(workers=4, batches=slow), settings(in_order=False)) > 1.05


def test_the_interval_is_wider_where_batches_differ():
    alike, differ = (
        training(off=40),
        training(
            batches=[Task(0.0, (400 if number % 40 < 3 else 30) * MS) for number in range(80)]
        ),
    )

    widths = []
    for recorded in (alike, differ):
        predicted = predict(recorded, settings(num_workers=2))
        assert isinstance(predicted, PredictedRate)
        widths.append(predicted.high / predicted.low)
    assert widths[1] > widths[0] > 1.1


def width(recorded: RecordedInput, change: Change) -> float:
    predicted = predict(recorded, change)
    assert isinstance(predicted, PredictedRate)
    return math.log(predicted.high / predicted.low)


def test_the_interval_is_wider_where_work_falls_away_than_where_other_workers_do_it():
    """What remains of a sample was measured beside what falls away; more workers do what was
    measured.
    """
    by_workers = width(training(off=60), settings(num_workers=4))
    by_little, by_much = (
        width(training(off=60), Change(stages={"read": Factor(1.0, left)})) for left in (0.9, 0.1)
    )
    restarts = width(training(starts=SHORT), settings(persistent_workers=True))

    assert by_much > 2 * by_workers and restarts > by_workers
    assert by_little < 1.2 * by_workers


def test_work_that_falls_away_behind_the_step_does_not_widen_the_interval():
    hidden = training(off=20, own=60)

    assert gain(hidden, Change(stages={"read": GONE, "decode": GONE})) < 1.02
    assert width(hidden, Change(stages={"read": GONE, "decode": GONE})) == pytest.approx(
        width(hidden, settings(num_workers=2)), rel=0.1
    )


def test_a_search_can_do_without_the_interval():
    predicted = predict(training(), settings(num_workers=2), interval=False)

    assert isinstance(predicted, PredictedRate)
    assert predicted.low == predicted.after == predicted.high
    assert predicted.after == predict(training(), settings(num_workers=2)).after


def test_a_run_whose_replay_is_another_is_refused():
    assert reason(training(rate=1e4), settings(num_workers=2)) == "replay_disagrees"


def test_what_is_not_modelled_is_refused():
    assert reason(training(), settings(batch_size=16)) == "not_modelled"
    assert reason(training(), settings(pin_memory=True)) == "not_modelled"


def test_more_workers_behind_a_lock_are_refused():
    recorded = training(off=40, locked=0.5)

    assert reason(recorded, settings(num_workers=2)) == "lock"
    assert gain(recorded, settings(prefetch_factor=4)) == pytest.approx(1, rel=0.02)
    assert gain(replace(recorded, locked=0.05), settings(num_workers=2)) > 1.5


def test_a_disk_is_not_expected_to_give_more_than_it_gave():
    recorded = training(off=40, disk=50e6)

    assert reason(recorded, settings(num_workers=2)) == "disk_bandwidth"
    assert gain(recorded, Change({"num_workers": 2}, stages={"read": GONE})) > 2
    assert gain(recorded, settings(prefetch_factor=4)) == pytest.approx(1, rel=0.02)


def test_without_ends_a_pass_waits_for_no_first_batch():
    few = training(cpu=20, own=5, workers=4, cpus=8.0, starts=SHORT, persistent=True)

    assert gain(few, Change(endless=True)) > gain(few, Change({"num_workers": 8})) * 1.1
