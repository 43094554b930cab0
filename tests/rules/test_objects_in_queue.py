import pytest
from rules.made_up import made_up_facts, waiting

from feedline.analysis.ledger.finding import Severity
from feedline.analysis.rules.input.objects_in_queue import _check

ARRAYS = {"flags": ["objects"], "batch_bytes": 38.5e6, "pickle_bytes": 38.5e6}


def test_arrays_through_the_queue_cost_their_transport():
    finding = _check(
        waiting(
            60.0, loader=ARRAYS, stages={"transport": 40.0}, sample={"transport": (1.2, 0.0, 0.0)}
        )
    )

    assert (finding.rule_id, finding.severity) == ("objects_in_queue", Severity.HIGH)
    assert finding.cost_s == pytest.approx((1 - 24 / 447) * (40e-3 + 60e-3 * 1.2 / 4.8))
    assert "38.5 MB per batch are pickled" in finding.message


def test_it_is_silent_up_to_a_mebibyte():
    assert (
        _check(waiting(loader=ARRAYS | {"pickle_bytes": 2**20}, stages={"transport": 40.0})) is None
    )


def test_it_is_silent_where_transport_is_cheap():
    assert _check(waiting(loader=ARRAYS, stages={"transport": 2.0})) is None


def test_a_healthy_training_may_send_objects():
    assert _check(made_up_facts(loader=ARRAYS)) is None
