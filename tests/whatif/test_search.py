"""The search for loader settings, with a predictor whose answers are known."""

import pytest
from whatif.closed_form import ClosedForm

from feedline.analysis.ledger.finding import PredictedRate, Refused
from feedline.analysis.predict.limits import CPUS, STEP, WORKERS
from feedline.analysis.predict.search import (
    NEAR,
    Limits,
    Memory,
    Search,
    Searcher,
    Tuning,
    _numbers,
)
from feedline.cli.tune.text import _conclusion, _why_not_more

NOW = {
    "num_workers": 1,
    "prefetch_factor": 2,
    "in_order": True,
    "persistent_workers": False,
    "made_at": "train.py:3",
}
MB = 1e6


USUAL = Memory(100 * MB, MB)


def search(predict=None, now=NOW, epochs=1, memory=USUAL, **limits) -> Search:
    found = Searcher(
        predict or ClosedForm(), now, epochs, Limits(**{"workers": 8, **limits}), memory
    ).search()
    assert isinstance(found, Search)
    return found


def test_the_fewest_workers_that_come_near_the_best_are_chosen():
    found = search(ClosedForm(per_worker=24.6))  # 4: 98.4, 5: 100

    assert found.best.workers == 4
    assert found.best.predicted.after >= NEAR * max(one.predicted.after for one in found.by_workers)
    assert found.changes == {"num_workers": 4}
    assert found.limit is not None and found.limit.id == STEP


def test_one_more_worker_is_taken_where_it_gives_more_than_that():
    assert search(ClosedForm(per_worker=24.4)).best.workers == 5  # 4: 97.6


def test_no_more_workers_than_allowed_are_tried():
    found = search(workers=2)

    assert found.best.workers == 2
    assert max(one.workers for one in [*found.by_workers, *found.few]) == 2
    assert found.limit is not None and found.limit.id == WORKERS


def test_busy_cpus_are_called_the_limit_and_lifted_by_cores():
    found = search(ClosedForm(on_cpus=50.0))
    assert (found.best.workers, found.limit.id if found.limit else "") == (2, CPUS)

    more = search(ClosedForm(on_cpus=50.0), cpus=4.0)
    assert more.best.predicted.after == 100


def test_workers_that_do_not_fit_into_memory_are_left_out():
    found = search(memory_bytes=250 * MB)

    assert found.best.workers == 2 and found.left_out == 3
    assert found.best.memory_bytes == 204 * MB


def test_batches_ahead_that_do_not_fit_into_shared_memory_are_left_out():
    found = search(ClosedForm(per_worker=10.0), shared_bytes=11 * MB)

    assert found.best.workers == 5 and found.left_out is not None


def test_memory_that_was_not_recorded_limits_nothing():
    found = search(memory=Memory(None, None), memory_bytes=1.0)

    assert found.best.workers == 4 and found.best.memory_bytes is None


def test_where_nothing_fits_it_is_refused():
    found = Searcher(ClosedForm(), {**NOW, "num_workers": 1}, 1, Limits(0), Memory(MB, MB)).search()
    assert isinstance(found, Search) and found.best.workers in (0, 1)

    refusal = Refused("too_short", "only 3 batches were recorded")
    assert (
        Searcher(ClosedForm(refused=refusal), NOW, 1, Limits(4), Memory(MB, MB)).search() == refusal
    )


def test_settings_of_which_there_is_no_prediction_are_left_out_and_told():
    predict = ClosedForm()

    def to_two(change, interval=True):
        return (
            predict(change, interval)
            if change.settings["num_workers"] <= 2
            else Refused("disk_bandwidth", "too fast")
        )

    found = search(to_two)

    assert found.best.workers == 2
    assert found.unpredicted == (3, Refused("disk_bandwidth", "too fast"))
    assert found.limit is not None and found.limit.id == "disk"


def test_batches_out_of_order_are_told_and_never_chosen():
    found = search(ClosedForm(order_gain=1.2))

    assert all(one.settings["in_order"] for one in [found.best, *found.few] if one.workers)
    assert found.unordered is not None and found.unordered.predicted.after == 120
    assert search(ClosedForm(order_gain=1.01)).unordered is None


def test_a_loader_that_is_out_of_order_stays_so():
    found = search(now={**NOW, "in_order": False})

    assert found.best.settings["in_order"] is False and found.unordered is None
    assert "in_order" not in found.changes


def test_workers_are_kept_between_passes_where_there_are_several():
    assert search(epochs=3).changes == {"num_workers": 4, "persistent_workers": True}
    assert "persistent_workers" not in search(epochs=1).changes


def test_more_batches_ahead_are_chosen_where_they_spare_workers():
    found = search(ClosedForm(per_worker=25.0, depth_gain=2.0))

    assert (found.best.workers, found.best.depth) == (2, 8)
    assert found.changes == {"num_workers": 2, "prefetch_factor": 8}


def test_without_a_better_setting_those_of_now_are_kept():
    found = search(now={**NOW, "num_workers": 4, "prefetch_factor": 3})

    assert found.changes == {}


def test_fewer_workers_are_advised_where_they_are_as_fast():
    assert search(now={**NOW, "num_workers": 8}).changes == {"num_workers": 4}


def test_a_training_without_workers_gets_some_and_torchs_defaults_are_not_spelled_out():
    found = search(
        now={
            "num_workers": 0,
            "prefetch_factor": None,
            "in_order": True,
            "persistent_workers": False,
        }
    )

    assert found.now.settings == {"num_workers": 0}
    assert found.changes == {"num_workers": 4}


def test_no_workers_are_advised_where_the_main_process_is_as_fast():
    assert search(ClosedForm(alone=99.0)).changes == {"num_workers": 0}


def test_nothing_is_predicted_twice():
    predict = ClosedForm(per_worker=25.0, depth_gain=2.0)
    found = search(predict)

    settings = [
        (*sorted(change.settings.items()), change.cpus, change.endless, interval)
        for change, interval in predict.asked
    ]
    assert len(settings) == len(set(settings))
    assert found.tried == len({asked[:-1] for asked in settings})


def test_all_that_is_shown_has_its_interval():
    found = search(ClosedForm(per_worker=25.0, depth_gain=2.0, order_gain=1.2))

    shown = [found.now, found.best, *found.few, *found.by_workers]
    assert all(one.predicted.low < one.predicted.after < one.predicted.high for one in shown)
    assert found.best == found.few[0] and found.best.depth == 8


@pytest.mark.parametrize(("most", "now"), [(0, 0), (1, 4), (8, 2), (100, 7), (4096, 0)])
def test_numbers_of_workers_ascend_to_the_largest_allowed(most, now):
    tried = _numbers(most, now)

    assert tried == sorted(set(tried)) and tried[0] == 0 and tried[-1] == most
    assert now in tried or now > most
    assert len(tried) < 40


def test_more_workers_that_may_be_no_gain_are_not_advised():
    """Three samples/s more than now, give or take four."""

    def unsure(change, interval=True):
        rate = 30.0 + 1.5 * (change.settings["num_workers"] - 1)
        return PredictedRate(30.0, rate, rate - 4 * interval, rate + 4 * interval)

    found = search(unsure, workers=3)

    assert found.best == found.now and not found.changes
    assert _conclusion(found, Limits(3)).endswith(
        "no other settings within the limits are sure to be faster."
    )
    assert search(unsure, workers=8).best.workers == 8  # 10 more


def test_what_was_tried_and_rejected_is_left_out_with_all_larger_numbers_of_workers():
    tried = Refused(
        "rejected",
        "num_workers=3 was tried by feedline verify on 2026-11-28 and rejected: measured -7.8 % "
        "[-9.0 %, -6.6 %]",
    )
    predict = ClosedForm()

    def after(change, interval=True):
        return tried if change.settings["num_workers"] == 3 else predict(change, interval)

    found = search(after)

    assert (
        found.best == found.now
        and found.no_more
        and found.unpredicted is None
        and found.limit is None
    )
    assert found.rejected == [tried.message] and tried.message + "." in list(
        _why_not_more(Tuning(found, Limits(8), USUAL))
    )
    assert _conclusion(found, Limits(8)).endswith(": more workers were tried, and rejected.")


@pytest.mark.parametrize(("per_worker", "gain"), [(30.0, True), (100.0, False), (99.5, False)])
def test_more_workers_gain_only_if_one_number_of_them_surely_does(per_worker, gain):
    """At 99.5, a second worker is half a percent faster, and known to one percent."""
    now = ClosedForm(per_worker=per_worker)

    assert Searcher(now, NOW, 1, Limits(4), USUAL).more_workers_gain() is gain


def test_whether_more_workers_gain_is_unknown_where_they_cannot_be_predicted():
    def to_one(change, interval=True):
        return (
            ClosedForm()(change, interval)
            if change.settings["num_workers"] == 1
            else Refused("lock", "unknown")
        )

    assert Searcher(to_one, NOW, 1, Limits(4), USUAL).more_workers_gain() is None


@pytest.mark.parametrize("workers", [0, 1, 8, 30])
@pytest.mark.parametrize("on_cpus", [50.0, 1e9])
def test_a_search_makes_no_more_predictions_than_it_says_before_and_tells_each(workers, on_cpus):
    told: list[int] = []
    searcher = Searcher(
        ClosedForm(on_cpus=on_cpus), NOW, 2, Limits(workers), USUAL, tell=told.append
    )

    searcher.search()

    assert told == list(range(1, len(told) + 1))
    assert 1 < len(told) <= searcher.at_most
