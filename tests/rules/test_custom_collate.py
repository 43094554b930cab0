import shutil

import pytest
from golden.record import RUNS
from rules.made_up import made_up_facts, waiting
from rules.said import verdict

from feedline.analysis.explain.diagnose import diagnose
from feedline.analysis.explain.reports_of_run import training_input
from feedline.analysis.ledger.finding import Severity
from feedline.analysis.rules.input.custom_collate import _check
from feedline.profiler.store.trainings import open_run

ORDINARY = {"flags": [], "batch_bytes": 38.5e6, "pickle_bytes": 900.0}
SENDING = {"transport": (3.6, 0.0, 0.0)}  # three quarters as long as the making of a sample


def test_a_batch_outside_shared_memory_is_copied_once_more():
    finding = _check(
        waiting(60.0, loader=ORDINARY, sample=SENDING, settings={"collate": "my_collate"})
    )

    assert (finding.rule_id, finding.severity) == ("custom_collate", Severity.HIGH)
    assert finding.cost_s == pytest.approx((1 - 24 / 135) * (0.4e-3 + 60e-3 * 4.1 / 4.8))
    assert (
        "my_collate() does not put its batches into shared memory: each is copied once more (38.5 MB)"
        in finding.message
    )


def test_on_full_cpus_a_batch_that_waits_to_be_copied_says_why_they_are_full():
    full = waiting(
        0.3,
        waits={"handover": 25.0, "in_transit": 14.0},
        loader=ORDINARY,
        sample={"collate": (1.0, 2.0, 0.0), "transport": (4.0, 0.0, 0.0)},
        settings={"num_workers": 2},
        effective_cpus=2.0,
        used_cpus=1.9,
    )

    found = [(finding.rule_id, finding.severity) for finding in diagnose(full)]

    assert found[:2] == [("custom_collate", Severity.HIGH), ("cpu_saturated", Severity.HIGH)]


def test_the_function_is_named_as_it_is_written():
    facts = waiting(60.0, loader=ORDINARY, sample=SENDING, settings={"collate": "stacked"})

    assert "stacked() does not" in verdict([_check(facts)], facts)


@pytest.mark.parametrize(
    "changes",
    [
        {"loader": ORDINARY | {"flags": ["shared"]}},
        {"loader": ORDINARY | {"flags": ["objects"]}},
        {"loader": ORDINARY | {"pickle_bytes": 2e6}},  # objects_in_queue
        {"loader": ORDINARY | {"batch_bytes": None}},
        {"loader": ORDINARY, "settings": {"num_workers": 0}},  # nothing is handed over
    ],
)
def test_it_is_silent_where_nothing_is_copied_for_it(changes):
    assert _check(waiting(**{"sample": SENDING, **changes})) is None


def test_it_is_silent_where_collate_and_transport_cost_less_than_five_percent_of_the_step():
    assert (
        _check(
            waiting(
                loader=ORDINARY, sample={"collate": (0.2, 0.0, 0.0), "transport": (0.3, 0.0, 0.0)}
            )
        )
        is None
    )


def test_a_healthy_training_may_collate_as_it_likes():
    assert _check(made_up_facts(loader=ORDINARY)) is None


def test_batches_of_workers_that_the_main_process_pins_left_the_queue_shared(tmp_path):
    """A pinned tensor is a copy of the shared one, and no longer shared itself."""
    shutil.copytree(RUNS / "h200-resnet50", tmp_path / "run")

    loader = training_input(open_run(tmp_path / "run")).facts.loader

    assert {"pinned", "shared"} <= set(loader.flags)
