"""The verdict of a training that is watched is about what takes most of its time."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from attach.made_processes import FOR_BATCH, FORKED, SECONDS, TORCH, process, thread, watched

from feedline.analysis.explain.attached import (
    Attached,
    SampledProcesses,
    SampledShare,
    _explains,
    _verdict,
)
from feedline.analysis.ledger.finding import SHARE, Evidence, Finding, Severity
from feedline.analysis.measure.code_places import OTHER as OWN
from feedline.analysis.measure.code_places import WAIT
from feedline.analysis.measure.code_tree import MAIN
from feedline.profiler.attach.watched import Usage, WatchedCpus

MOVES = SimpleNamespace(stuck=False)
SAMPLES = SimpleNamespace(places={(MAIN, OWN): SimpleNamespace(weight=SimpleNamespace(number=999))})


def found(rule_id, share):
    evidence = [Evidence("function_share", "a function", share, SHARE)]
    return Finding(rule_id, Severity.HIGH, message=f"{rule_id} takes it", evidence=evidence)


@pytest.mark.parametrize(
    ("shares", "begins"),
    [
        ({WAIT: 0.36, OWN: 0.46, "forward": 0.1}, "Bound by the training loop: 46 %"),
        ({WAIT: 0.5, OWN: 0.3, "forward": 0.1}, "Input-bound: Input takes 50 %"),
        ({WAIT: 0.25, "checkpoint": 0.5, "forward": 0.1}, "Bound by checkpoint"),
        (
            {WAIT: 0.1, OWN: 0.1, "forward": 0.8},
            "Bound by the model: forward, backward and optimizer take 80 %",
        ),
    ],
)
def test_the_largest_of_input_loop_and_others_is_named(shares, begins):
    sampled = SampledProcesses({row: SampledShare(one, one, one) for row, one in shares.items()})

    limit, _ = _verdict(sampled, MOVES, [], SAMPLES)

    assert limit.startswith(begins)


def test_a_function_of_samples_explains_no_more_than_the_wait_for_them():
    assert _explains(found("user_code", 0.9), waits=0.36) == pytest.approx(0.324)
    assert _explains(found("own_code", 0.46), waits=0.36) == 0.46


FORWARD = [FOR_BATCH[0], (TORCH + "nn/modules/module.py", "_call_impl", 1750)]
MAKES = [
    *FORKED,
    (TORCH + "utils/data/_utils/worker.py", "_worker_loop", 349),
    (TORCH + "utils/data/_utils/fetch.py", "fetch", 54),
    ("/p/data.py", "__getitem__", 22),
]


def fed_by_workers(*, cpus, waiting=0.0, workers=2, used=0.9):
    """What is said of a training whose workers use so many CPUs each, and wait for one so long."""
    making = [
        process(number, thread(MAKES), parent=1, state="R") for number in range(2, 2 + workers)
    ]
    usage = Usage(cpu_s=used * SECONDS, runqueue_s=waiting * SECONDS)
    making = [replace(one, usage=usage, name="pt_data_worker") for one in making]
    main = replace(
        process(1, thread(FOR_BATCH, FOR_BATCH, FORWARD), parent=0),
        usage=Usage(cpu_s=0.1 * SECONDS, runqueue_s=waiting * SECONDS),
    )
    return Attached.of(replace(watched(main, *making), cpus=cpus)).report


@pytest.mark.parametrize(
    ("cpus", "fix"),
    [
        (WatchedCpus(2.0, 0.0, 2.0), "Use fewer workers or threads"),
        (WatchedCpus(4.0, 0.1, 3.9), "Stop what else runs on these CPUs"),
        (WatchedCpus(4.0, 2.0, 2.0), "Give the training more CPUs."),
        (WatchedCpus(4.0, 0.1, 2.0), "Give the training more CPUs."),
        (None, "Give the training more CPUs."),
    ],
    ids=["its own", "others", "neither is seen", "stolen", "unknown"],
)
def test_who_holds_the_cpus_is_who_is_told_to_use_fewer(cpus, fix):
    crowded = [
        finding
        for finding in fed_by_workers(cpus=cpus, waiting=0.5).findings
        if finding.rule_id == "cpu_saturated"
    ]

    assert [finding.fix.startswith(fix) for finding in crowded] == [True]
    used = {one.id: one.value for one in crowded[0].evidence}["cpus_of_training"]
    assert used == pytest.approx(1.9)


@pytest.mark.parametrize(
    ("cpus", "told"),
    [
        (WatchedCpus(8.0, 5.0, 3.0), True),
        (WatchedCpus(2.0, 0.1, 1.9), False),
        (WatchedCpus(2.0, 6.0, 2.0), False),  # a quota, of which nothing is left
        (None, False),
    ],
)
def test_more_workers_are_told_only_where_a_cpu_is_free(cpus, told):
    (finding,) = fed_by_workers(cpus=cpus).findings

    assert finding.rule_id == "user_code"
    assert any("more workers" in more for more in finding.fix_more) == told
