import pytest
from rules.made_up import made_up_facts, waiting

from feedline.analysis.ledger.finding import Severity
from feedline.analysis.rules.input.straggler_in_order import _check

STRAGGLING = {
    "waits": {"starved": 5.0, "head_of_line": 50.0},
    "straggler_share": 0.3,
    "maker": {"fetch_cv": 1.4},
}


def test_ready_batches_behind_a_slow_one_are_a_finding():
    finding = _check(waiting(**STRAGGLING))

    assert (finding.rule_id, finding.severity) == ("straggler_in_order", Severity.HIGH)
    assert finding.cost_s == pytest.approx(50e-3)
    assert "wait 50.0 ms per step behind slow ones" in finding.message
    assert finding.fix == "Set in_order=False (now True)."
    assert finding.condition == "only if the order of batches may change"
    assert finding.fix_more[0].startswith("To keep the order, raise prefetch_factor")


def test_transformers_is_given_it_in_its_arguments():
    settings = {"made_at": "train.py:88", "made_by": "transformers"}

    finding = _check(waiting(**STRAGGLING, settings=settings))

    assert finding.fix == "Set dataloader_in_order=False (now True)."
    assert finding.fix_more[0] == (
        "With transformers before 5.15, override Trainer.get_train_dataloader to set it."
    )
    assert finding.fix_more[1].startswith("To keep the order, raise dataloader_prefetch_factor (")


def test_what_workers_lack_in_any_order_is_not_its_cost():
    slow = {
        "dataset": (12.7, 0.0, 0.0)
    }  # four workers make a batch every 136 ms, 36 more than the step takes

    assert _check(waiting(**STRAGGLING, sample=slow)).cost_s == pytest.approx(
        (5 + 50 - 36) * 1e-3, abs=1e-4
    )


@pytest.mark.parametrize(
    "change",
    [
        {"maker": {"fetch_cv": 0.3}},
        {"maker": {"fetch_cv": None}},
        {"settings": {"in_order": False}},
        {"settings": {"num_workers": 1}},
        {"waits": {"starved": 50.0, "head_of_line": 4.0}},
    ],
)
def test_it_is_silent_without_one_part_of_its_signature(change):
    assert _check(waiting(**(STRAGGLING | change))) is None


def test_it_needs_no_measure_of_idle_workers():
    assert _check(waiting(**(STRAGGLING | {"straggler_share": None})))


def test_a_healthy_training_may_have_uneven_batches():
    assert _check(made_up_facts(maker={"fetch_cv": 1.4}, straggler_share=0.1)) is None
