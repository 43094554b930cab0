from dataclasses import replace

import pytest
from rules.made_up import SAMPLE, made_up_facts, without_workers
from text.breath import advised, said

from feedline.analysis.explain.diagnose import diagnose
from feedline.analysis.ledger.finding import Severity
from feedline.analysis.rules.input.made_one_by_one import _check

STEP = {"forward": 0.3, "backward": 0.4, "optimizer": 0.1, "other": 0.0, "copy": 0.0}


def rows(us: float, backward_ms: float = 0.4, **changes):
    """Batches of 32 rows in memory, each stage of which takes so many microseconds per sample."""
    sample = dict.fromkeys(SAMPLE, (us / 1e3, 0.0, 0.0))
    stages = {**STEP, "backward": backward_ms}
    return without_workers(
        sample=sample, stages=stages, loader={"batch_bytes": 4096.0}, batch_tensors=2.0, **changes
    )


def test_batches_that_are_cheaper_to_make_than_to_receive_stay_in_the_main_process():
    finding = _check(rows(3.0))

    assert (finding.rule_id, finding.severity) == ("made_one_by_one", Severity.HIGH)
    assert finding.cost_s == pytest.approx(0.48e-3)
    assert finding.more == [
        "workers may not help",
        "receiving batches from workers takes 401 µs to 1.80 ms per step",
    ]
    assert finding.fix_more == [
        "Keep num_workers=0.",
        "DataLoader(..., sampler=BatchSampler(sampler, 32, drop_last=False), batch_size=None)  "
        "# now batch_size=32",
        "Remove shuffle, drop_last, batch_sampler and collate_fn if set.",
    ]
    assert [found.rule_id for found in diagnose(rows(3.0))] == ["made_one_by_one"]


def test_a_loader_that_shuffles_is_told_the_sampler_to_write_in_place_of_shuffle():
    shuffled = {"sampler": "RandomSampler", "batch_size": 30, "drop_last": True}
    fix = advised(_check(rows(3.0, settings=shuffled)))

    assert (
        "sampler=BatchSampler(RandomSampler(dataset), 30, drop_last=True), batch_size=None" in fix
    )


def test_workers_that_would_save_a_little_are_not_called_useless():
    finding = _check(rows(12.0, backward_ms=30.0))

    assert "workers would save 118 µs to 1.52 ms per step" in said(finding)
    assert "Keep" not in advised(finding)


def test_batches_that_take_longer_than_receiving_them_are_work_for_workers():
    assert _check(rows(30.0)) is None
    assert "too_few_workers" in [finding.rule_id for finding in diagnose(rows(30.0))]


def test_batches_that_torch_asks_for_whole_are_not_made_one_by_one():
    assert _check(rows(3.0, settings={"whole_batches": True})) is None


def test_a_collate_function_of_the_programs_own_stays():
    facts = rows(3.0, settings={"collate": "pad"})
    collating = facts.step.stages["collate"]
    finding = _check(facts)

    assert finding.cost_s == pytest.approx(_check(rows(3.0)).cost_s - collating)
    assert "collate_fn then gets what the dataset returns" in advised(finding)
    assert {one.id for one in finding.evidence} >= {"making_s", "apart_s"}


def test_objects_such_as_graphs_are_not_made_in_one_call():
    facts = rows(3.0)
    assert _check(replace(facts, loader=replace(facts.loader, batch_bytes=0.0))) is None


def test_an_iterable_dataset_yields_whole_batches():
    finding = _check(rows(3.0, settings={"map_style": False}))

    assert "let the dataset yield whole batches" in finding.fix
    assert "DataLoader(..., batch_size=None)  # now batch_size=32" in finding.fix_more
    assert finding.fix_more[-1] == "Remove drop_last if set."


def test_with_workers_or_without_a_batch_it_is_silent():
    assert _check(made_up_facts()) is None
    assert _check(rows(3.0, settings={"num_workers": 4})) is None


def test_a_batch_sampler_of_a_librarys_own_stays():
    """As Opacus makes it: its batches are of a size that is drawn, and of samples that are drawn."""
    drawn = {
        "batch_sampler": "UniformWithReplacementSampler",
        "sampler": "SequentialSampler",
        "batch_size": None,
        "collate": "CollateFnWithEmpty",
    }
    finding = _check(rows(3.0, settings=drawn))

    assert "__getitems__()" in finding.fix
    assert "BatchSampler" not in advised(finding) and "batch_size" not in advised(finding)


@pytest.mark.parametrize(
    ("of_sampler", "each"),
    [
        ({"replacement": True}, "sampler"),
        ({"replacement": False, "epoch_samples": 8000, "dataset_samples": 20000}, "sampler"),
        ({"replacement": False, "epoch_samples": 20000, "dataset_samples": 20000}, None),
        ({"epoch_samples": 19980, "dataset_samples": 20000, "drop_last": True}, None),
    ],
    ids=["with-replacement", "a-part", "each-sample", "whole-batches"],
)
def test_a_sampler_with_arguments_of_its_own_stays(of_sampler, each):
    settings = {"sampler": "RandomSampler", "batch_size": 30, **of_sampler}
    fix = advised(_check(rows(3.0, settings=settings)))

    assert f"sampler=BatchSampler({each or 'RandomSampler(dataset)'}, 30, " in fix
