"""Every check fires on its mistake, and none on a healthy run."""

from dataclasses import replace

import numpy as np
import pytest
from advisor.made_up import SETUP, curve, run, with_curve, with_norms

from feedline.analysis.convergence import advisor, checks, read_training
from feedline.analysis.convergence.advisor import advise
from feedline.analysis.ledger.finding import Severity


def causes(recorded):
    return [finding.rule_id for finding in checks.run_checks(recorded)]


def setup(**changed):
    return run(setup=changed)


def lars(module="timm.optim.lars", kind="Lars", decay=0.0, **more):
    group = {"lr": 1.0, "weight_decay": decay, "tensors": 4, "vectors": 2}
    return {
        "kind": kind,
        "module": module,
        "groups": [group, {**group, "weight_decay": 0.0, "tensors": 7, "vectors": 7}],
        **more,
    }


def sampler(**changed):
    return {"samplers": [{**SETUP["samplers"][0], **changed}]}


def scheduler(kind, horizon, steps=192):
    return {"schedulers": [{"kind": kind, "horizon": horizon, "steps": steps}]}


RANDOM = {
    "kind": "RandomSampler",
    "shuffles": True,
    "epochs": 12,
    "distinct": 0,
    "samples": 4096,
    "of": 4096,
}


def same_on_every_rank():
    healthy = run()
    return with_norms(healthy, small_sq=healthy.norms.big_sq * (1 + 1e-7))


def summed():
    healthy = run()
    return with_norms(healthy, big_sq=healthy.norms.big_sq * healthy.norms.parts**2)


def lost():
    values = run().curves["train loss"].values.copy()
    values[100:] = np.nan
    return with_curve(run(), "train loss", values)


def exploded():
    values = run().curves["train loss"].values.copy()
    values[100:] = 1e9
    return with_curve(run(), "train loss", values)


def few(**changed):
    return {"layers": 3, "synced": 0, "samples": 2, "gpu": True, **changed}


PLANTED = {
    "same_data": same_on_every_rank,
    "sum_not_mean": summed,
    "schedule_in_steps": lambda: setup(**scheduler("CosineAnnealingLR", 1536)),
    "missing_set_epoch": lambda: setup(**sampler(distinct=1)),
    "whole_data_on_every_rank": lambda: setup(samplers=[RANDOM]),
    "layerwise_without_decay": lambda: setup(optimizers=[lars(module="their.lars")]),
    "few_samples_in_batch_norm": lambda: setup(batch_norms=[few()]),
    "not_finite": lost,
    "loss_exploded": exploded,
    "skipped_steps": lambda: setup(scaler={"kind": "GradScaler", "skipped": 40}),
    "rate_outside_momentum": lambda: setup(optimizers=[lars(decay=1e-4)]),
    "sync_batch_norm": lambda: setup(norms={"SyncBatchNorm": 20}),
    "rate_at_top": lambda: with_curve(run(), "lr", np.full(192, 0.08)),
}


@pytest.mark.parametrize(
    ("library", "call"),
    [
        ("", "DistributedSampler"),
        ("webdataset", "split_by_node"),
        ("datasets", "split_dataset_by_node"),
        ("Ray Data", "get_dataset_shard"),
        ("Grain", "world_size"),
    ],
)
def test_ranks_with_the_same_samples_are_told_in_the_terms_of_their_library(library, call):
    (found,) = checks.run_checks(replace(same_on_every_rank(), library=library))

    assert found.rule_id == "same_data" and call in found.fix


def test_the_library_is_that_of_the_loader_or_of_its_stream():
    own, stream = {"kind": "ReplayBuffer", "library": "torchrl"}, {"dataset_library": "datasets"}

    assert read_training._library([own]) == "torchrl"
    assert read_training._library([{"kind": "DataLoader", **stream}]) == "datasets"
    assert read_training._library([{"kind": "DataLoader"}]) == ""


@pytest.mark.parametrize("rule_id", PLANTED)
def test_a_check_finds_its_mistake_and_no_other_does(rule_id):
    assert causes(PLANTED[rule_id]()) == [rule_id]


@pytest.mark.parametrize("rule_id", PLANTED)
def test_a_finding_has_evidence_or_a_name_and_says_what_to_do_and_what_would_disprove_it(rule_id):
    (found,) = checks.run_checks(PLANTED[rule_id]())

    assert found.message and found.fix and found.how_to_check
    assert all(np.isfinite(fact.value) for fact in found.evidence)


def test_every_check_has_a_planted_mistake():
    assert len(PLANTED) == len(checks.CHECKS)


@pytest.mark.parametrize("batch", [32, 64, 256, 2048])
@pytest.mark.parametrize("scale", [0.5, 30.0, 3000.0])
def test_a_healthy_run_has_none(batch, scale):
    assert causes(run(batch=batch, scale=scale)) == []


@pytest.mark.parametrize(
    "recorded",
    [
        setup(**scheduler("LinearLR", 20)),  # a warm-up that is over
        setup(**scheduler("MultiStepLR", 60)),
        setup(**scheduler("CosineAnnealingLR", None)),
        setup(**scheduler("CosineAnnealingLR", 90, steps=1)),  # a trial of one epoch
        setup(**scheduler("CosineAnnealingLR", 200)),  # a ragged last batch
        setup(optimizers=[lars(module="their.lars", decay=1e-4)]),
        setup(optimizers=[lars(module="feedline.convergence.fixes.lars", kind="Lars")]),
        setup(scaler={"kind": "GradScaler", "skipped": 3}),
        setup(**sampler(shuffles=False, distinct=1)),
        setup(**sampler(epochs=1, distinct=1)),
        replace(run(setup={"samplers": [RANDOM]}), ranks=1),
        replace(setup(**scheduler("CosineAnnealingLR", 1536)), ended=False),
        replace(run(setup={"norms": {"SyncBatchNorm": 20}}), batch=16.0),
        replace(with_curve(run(), "lr", np.full(192, 0.08)), setup={**SETUP, "schedulers": []}),
        replace(
            with_curve(run(), "lr", np.full(192, 0.08)),
            setup={**SETUP, **scheduler("MultiStepLR", 60, steps=2)},
        ),  # a trial run
        replace(
            with_curve(run(), "lr", np.full(192, 0.08)),
            setup={**SETUP, **scheduler("StepLR", None, steps=2)},
        ),
        replace(
            with_curve(run(), "lr", np.full(192, 0.08)),
            setup={**SETUP, **scheduler("WarmUpLR", None)},
        ),  # the program's own
        replace(run(), setup={}, curves={}, norms=None),
        setup(batch_norms=[few(samples=8)]),
        setup(batch_norms=[few(samples=0)]),  # unknown
        setup(batch_norms=[few(layers=0, synced=3)]),
        setup(
            norms={"SyncBatchNorm": 20}, batch_norms=[few(layers=0, synced=20, samples=4)]
        ),  # many micro-batches make an update
        with_curve(run(), "train loss", np.linspace(0.01, 900.0, 192)),  # a critic's score
        with_curve(
            run(), "train loss", np.linspace(0.7, -1e9, 192)
        ),  # what is minimized has no bound
        with_curve(run(), "train loss", np.where(np.arange(192) == 180, 1e9, 0.7)),  # one batch
    ],
)
def test_what_only_looks_like_a_mistake_is_none(recorded):
    assert causes(recorded) == []


def test_a_schedule_that_ended_long_before_the_training_is_found():
    assert causes(setup(**scheduler("CosineAnnealingLR", 24))) == ["schedule_in_steps"]


def test_a_sum_is_found_whatever_the_noise():
    for scale in (0.01, 100.0, 1e6):
        noisy = run(scale=scale)
        assert causes(with_norms(noisy, big_sq=noisy.norms.big_sq * 4)) == ["sum_not_mean"]


def test_every_rank_with_the_whole_data_set_in_its_own_order_is_only_told():
    (found,) = checks.run_checks(run(setup={"samplers": [RANDOM]}))

    assert (found.severity, advisor._stops_advice(found)) == (Severity.INFO, False)


def test_every_rank_with_the_whole_data_set_in_one_order_stops_everything():
    healthy = run(setup={"samplers": [RANDOM]})
    found = checks.run_checks(with_norms(healthy, small_sq=healthy.norms.big_sq))

    assert {one.rule_id for one in found} == {"same_data", "whole_data_on_every_rank"}
    assert all(advisor._stops_advice(one) for one in found)


def test_gradients_that_are_not_finite_hide_no_mistake():
    spoilt = same_on_every_rank()
    small = spoilt.norms.small_sq.copy()
    small[:20] = np.nan

    assert causes(with_norms(spoilt, small_sq=small)) == ["same_data"]


def test_the_most_severe_comes_first():
    bad = replace(same_on_every_rank(), setup={**setup(**sampler(distinct=1)).setup})

    assert causes(bad) == ["same_data", "missing_set_epoch"]


def test_a_curve_of_one_value_is_read_without_complaint():
    assert (
        causes(replace(run(), curves={"train loss": curve([2.3], 256), "lr": curve([0.1], 256)}))
        == []
    )


def test_batch_norm_is_synchronized_only_where_gpus_have_samples_enough_together():
    def fix(ranks, **changed):
        (found,) = checks.run_checks(replace(setup(batch_norms=[few(**changed)]), ranks=ranks))
        return " ".join([found.fix, *found.fix_more])

    assert "convert_sync_batchnorm(model). Statistics then come from 16 samples." in fix(8)
    assert "convert_sync_batchnorm" not in fix(8, gpu=False) and "SyncBatchNorm needs GPUs" in fix(
        8, gpu=False
    )
    assert "SyncBatchNorm" not in fix(2) and "GroupNorm" in fix(2)
    assert "SyncBatchNorm" not in fix(1) and "GroupNorm" in fix(1)


def test_under_batch_norm_over_two_samples_no_larger_batch_is_advised():
    small = run("small", batch=64, scale=2000.0, epochs=40)

    assert [one.id for one in advise([small]).advice] == ["larger_batch"]
    assert advise([replace(small, setup={**small.setup, "batch_norms": [few()]})]).advice == []
