import pytest
from rules.made_up import made_up_facts, waiting

from feedline.analysis.explain.diagnose import diagnose
from feedline.analysis.ledger.finding import Severity
from feedline.analysis.ledger.view.loader_call import _WITHOUT_WORKERS
from feedline.analysis.rules.input.fewer_workers import _check
from feedline.analysis.text.formatting import sentence

CHEAP = {
    "read": (0, 0, 0),
    "decode": (0, 0, 0),
    "augment": (0, 0, 0),
    "dataset": (0.01, 0, 0),
    "collate": (0.005, 0, 0),
}
STEP = {
    "forward": 0.3,
    "backward": 0.4,
    "optimizer": 0.1,
    "other": 0.0,
    "copy": 0.0,
    "transport": 1.2,
}
TRAINER = {
    "sample": CHEAP,
    "stages": STEP,
    "loader": {"flags": [], "batch_bytes": 4e3, "pickle_bytes": 700.0},
    "batch_tensors": 3.0,
}


def tiny(**changes):
    """A step of 0.8 ms and batches that take 0.48 ms to make, 1.2 ms to receive and another 0.6 to
    wait for.
    """
    return made_up_facts(**{**TRAINER, "waits": {"starved": 0.1, "in_transit": 0.5}, **changes})


def test_a_batch_that_takes_longer_to_receive_than_to_make_is_better_made_where_it_is_used():
    finding = _check(tiny())

    assert (finding.rule_id, finding.severity) == ("fewer_workers", Severity.HIGH)
    assert finding.fix == "DataLoader(..., num_workers=0)  # now 4"
    assert finding.fix_more == [f"{sentence(_WITHOUT_WORKERS)}."]
    assert finding.cost_s == pytest.approx(1.2e-3 + 0.6e-3 - 32 * 15e-6)
    assert "input takes 1.80 ms to get, and 480 µs to make" in finding.message


def test_persistent_workers_are_switched_off_with_the_workers():
    """Without, ``DataLoader(num_workers=0, persistent_workers=True)`` raises ValueError."""
    assert _check(tiny(settings={"persistent_workers": True})).settings == {
        "num_workers": 0,
        "persistent_workers": False,
    }


def test_no_other_advice_about_the_queue_stands_beside_it():
    causes = [finding.rule_id for finding in diagnose(tiny())]

    assert causes[0] == "fewer_workers"
    assert not {
        "too_few_workers",
        "custom_collate",
        "objects_in_queue",
        "epoch_restart",
        "straggler_in_order",
    } & set(causes)


def test_workers_that_spare_the_step_more_than_they_cost_stay():
    assert _check(made_up_facts()) is None
    assert _check(tiny(sample={**CHEAP, "dataset": (0.1, 0, 0)})) is None


def test_without_workers_there_are_none_to_take_away():
    assert _check(tiny(settings={"num_workers": 0})) is None


def test_a_gain_below_five_percent_of_the_step_is_not_spoken_of():
    assert _check(tiny(stages={**STEP, "forward": 30.0})) is None


def test_large_batches_that_are_pickled_keep_their_workers_and_become_tensors():
    arrays = {"flags": ["objects"], "batch_bytes": 38.5e6, "pickle_bytes": 38.5e6}
    facts = waiting(
        20.0, loader=arrays, stages={"transport": 300.0}, sample={"transport": (9.0, 0.0, 0.0)}
    )

    assert _check(facts) is None
    assert "objects_in_queue" in [finding.rule_id for finding in diagnose(facts)]


def test_workers_that_only_restart_too_often_are_kept():
    facts = made_up_facts(epochs=5, waits={"first_batch": 300.0}, loader={"first_batch_s": 6.0})

    assert _check(facts) is None


@pytest.mark.parametrize(("others", "silent"), [(0.9, False), (1.2, True)])
def test_it_is_silent_where_other_programs_leave_less_than_one_cpu(others, silent):
    facts = tiny(effective_cpus=2.0, used_cpus=0.8, others=others)

    assert (_check(facts) is None) is silent


def test_a_stream_that_asks_for_its_worker_must_do_without_one_in_the_main_process():
    """There, get_worker_info() is None."""
    stream = {"map_style": False, "asks_for_worker": True}
    handles = "only if the dataset handles get_worker_info() being None"

    assert _check(tiny(settings=stream)).condition == handles
    assert _check(tiny(settings=stream | {"asks_for_worker": False})).condition == ""
    assert _check(tiny()).condition == ""
    kept = _check(tiny(settings=stream | {"persistent_workers": True}))
    assert kept.condition == f"num_workers=0 {handles}"
