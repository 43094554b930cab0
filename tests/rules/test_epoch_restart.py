from dataclasses import replace

import pytest
from rules.made_up import made_up_facts, waiting
from text.breath import advised

from feedline.analysis.explain.predictions import of_recording
from feedline.analysis.ledger.finding import Change, Severity
from feedline.analysis.rules.input.epoch_restart import MADE_AGAIN, _change, _check

#: Ten epochs of 20 steps, each of which takes 1 s to its first batch: 50 ms a step.
RESTARTING = {
    "stages": {"epoch_start": 40.0},
    "waits": {"starved": 0.5, "first_batch": 10.0},
    "epochs": 10,
    "loader": {"first_batch_s": 1.0},
}


def test_workers_started_anew_each_epoch_are_a_finding():
    finding = _check(made_up_facts(**RESTARTING, settings={"start_method": "spawn"}))

    assert (finding.rule_id, finding.severity) == ("epoch_restart", Severity.HIGH)
    assert finding.cost_s == pytest.approx(
        50e-3 * (1 - 0.1536 / 1.0)
    )  # a batch takes 154 ms, which no setting spares
    assert finding.message == (
        "workers are started again (spawn) in each of 10 epochs, and the first batch then takes 1.00 s"
    )
    assert "forkserver" in advised(finding)


@pytest.mark.parametrize(
    "change",
    [{"epochs": 1}, {"settings": {"persistent_workers": True}}, {"settings": {"num_workers": 0}}],
)
def test_it_is_silent_where_nothing_is_started_again(change):
    assert _check(made_up_facts(**(RESTARTING | change))) is None


@pytest.mark.parametrize("persistent", [False, True])
def test_workers_of_a_loader_that_each_epoch_makes_anew_are_not_kept_by_a_setting(persistent):
    made_again = RESTARTING | {"loader": {"first_batch_s": 1.0, "epochs": 10, "objects": 10}}
    finding = _check(
        made_up_facts(
            **made_again, settings={"persistent_workers": persistent, "made_at": "train.py:141"}
        )
    )

    assert (
        "each of the 10 epochs makes a new DataLoader and starts its workers again"
        in finding.message
    )
    once = (
        "Make the loader once, before the loop: DataLoader(..., persistent_workers=True)  # "
        "now made for each pass"
    )
    assert finding.fix == once and finding.place == "train.py:141"
    assert finding.settings == {}


def test_no_setting_is_predicted_to_keep_the_workers_of_a_loader_that_is_made_anew():
    made_again = RESTARTING | {"loader": {"first_batch_s": 1.0, "epochs": 10, "objects": 10}}
    facts = made_up_facts(**made_again)
    predictions = of_recording(None, facts, 100.0, None)

    assert predictions.of(Change(settings={"persistent_workers": True})) is MADE_AGAIN
    assert _change(facts) == Change(one_loader=True)


@pytest.mark.parametrize(("of", "one_each"), [(6400, True), (64, False), (None, False)])
def test_a_pass_in_each_step_is_told_to_be_made_once(of, one_each):
    passes = RESTARTING | {
        "epochs": 200,
        "loader": {"first_batch_s": 1.0, "epochs": 200, "samples": 200 * 32},
    }
    facts = made_up_facts(**passes, settings={"epoch_samples": of, "made_at": "train.py:141"})

    finding = _check(facts)

    assert finding.message.startswith("each step makes a new iterator") == one_each
    assert finding.fix.startswith("Make the iterator once") == one_each
    assert any("StopIteration" in more for more in finding.fix_more) == one_each
    assert bool(finding.settings) != one_each


def test_it_is_silent_where_the_first_batch_takes_as_long_as_any():
    assert _check(made_up_facts(**(RESTARTING | {"loader": {"first_batch_s": 0.16}}))) is None


def test_a_wait_of_another_kind_is_not_its_own():
    assert _check(waiting(60.0, epochs=10, stages={"epoch_start": 2.0})) is None


def test_a_healthy_training_may_restart_its_workers():
    assert _check(made_up_facts(epochs=10, stages={"epoch_start": 3.0})) is None


def test_where_workers_that_stay_make_batches_slower_it_says_what_else_to_do():
    plain, dearer = (
        advised(_check(made_up_facts(**RESTARTING, staying_s=staying_s)))
        for staying_s in (0.0, 0.1)
    )

    assert (
        "Persistent workers use 100 ms more CPU time per batch here" in dearer
        and "Workers that stay" not in plain
    )


def test_loaders_of_other_libraries_have_no_workers_that_stay():
    """DALI and torchdata's nodes have no such setting; what starts with a pass is their own."""
    without = {"num_workers": None, "library": "torchdata.nodes"}

    facts = made_up_facts(**RESTARTING, settings=without)

    assert _check(replace(facts, workers=None)) is None
