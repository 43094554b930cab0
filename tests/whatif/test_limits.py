"""What limits a training after a change: what raises its throughput further, if anything."""

import pytest
from whatif.closed_form import ClosedForm

from feedline.analysis.ledger.finding import Change, PredictedRate, Refused
from feedline.analysis.predict.limits import ALONE, BOTH, CPUS, PASSES, STEP, WORKERS, next_limit


@pytest.mark.parametrize(
    ("predict", "workers", "limit", "rate"),
    [
        (ClosedForm(per_worker=30.0), 2, WORKERS, 100.0),
        (ClosedForm(per_worker=30.0), 4, STEP, 100.0),
        (ClosedForm(on_cpus=60.0), 4, CPUS, 100.0),
        (ClosedForm(per_worker=30.0, on_cpus=60.0), 2, BOTH, 100.0),
        (ClosedForm(alone=20.0), 0, ALONE, 30.0),
        (ClosedForm(per_worker=48.0), 2, STEP, 96.0),
    ],
)
def test_it_is_what_raises_the_throughput(predict, workers, limit, rate):
    change = Change({"num_workers": workers})
    after = predict(change)
    assert isinstance(after, PredictedRate)

    found = next_limit(predict, change, after, workers)

    assert found is not None and (found.id, found.samples_per_s) == (limit, rate)


def test_it_is_unknown_where_nothing_is_predicted_without_a_limit():
    after = PredictedRate(30.0, 60.0, 55.0, 65.0)

    assert (
        next_limit(ClosedForm(refused=Refused("x", "y")), Change({"num_workers": 2}), after, 2)
        is None
    )


def test_the_change_itself_stays_while_limits_are_lifted():
    predict = ClosedForm()
    change = Change({"num_workers": 2, "prefetch_factor": 4, "in_order": False})
    after = predict(change)
    assert isinstance(after, PredictedRate)

    next_limit(predict, change, after, 2)

    assert all(
        asked.settings["prefetch_factor"] == 4 and asked.settings["in_order"] is False
        for asked, _ in predict.asked
    )


def test_it_is_the_starts_of_epochs_where_only_their_end_raises_the_throughput():
    def predict(change: Change, interval: bool = True) -> PredictedRate:
        rate = 90.0 if change.endless else 60.0
        return PredictedRate(30.0, rate, rate, rate)

    found = next_limit(predict, Change({"num_workers": 4}), predict(Change()), 4)

    assert found is not None and (found.id, found.samples_per_s) == (PASSES, 90.0)
