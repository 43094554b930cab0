"""Norms that ranks share, against a copy of the model."""

import json

import numpy as np
import pytest

from feedline.analysis.convergence import checks
from feedline.analysis.convergence.advisor import advise
from feedline.analysis.convergence.read_training import read, summarise
from feedline.analysis.ledger.finding import Severity


def truth(folder, way):
    """(small: mean over ranks, big), float64 [updates] each."""
    by_rank = np.array([json.loads((folder / f"{way}.{rank}.json").read_text()) for rank in (0, 1)])
    return by_rank[:, :, 0].mean(0), by_rank[0, :, 1]


@pytest.mark.parametrize(
    ("way", "how"),
    [
        ("ddp", "ddp"),
        ("hook", "hook"),
        ("manual", "manual"),
        ("fsdp2", "fsdp2"),
        ("clipped", "ddp"),
    ],
)
def test_norms_of_parts_and_whole_are_those_of_the_gradients(two_ranks, way, how):
    norms = read(two_ranks / way).norms
    small, big = truth(two_ranks, way)

    assert (norms.how, norms.parts) == (how, 2)
    assert len(norms.updates) >= 6  # the first is never measured
    np.testing.assert_allclose(norms.small_sq, small[norms.updates], rtol=1e-4)
    np.testing.assert_allclose(norms.big_sq, big[norms.updates], rtol=1e-4)
    assert set(norms.b) == {4.0} and set(norms.B) == {8.0}


def test_accumulation_before_the_ranks_share_counts_all_its_samples(two_ranks):
    norms = read(two_ranks / "accumulated").norms
    small, big = truth(two_ranks, "accumulated")

    np.testing.assert_allclose(norms.small_sq, small[norms.updates], rtol=1e-4)
    np.testing.assert_allclose(norms.big_sq, big[norms.updates], rtol=1e-4)
    assert set(norms.b) == {8.0} and set(norms.B) == {16.0}


def test_the_same_data_on_every_rank_gives_parts_as_long_as_the_whole(two_ranks):
    norms = read(two_ranks / "same_data").norms

    np.testing.assert_allclose(norms.small_sq / norms.big_sq, 1, rtol=1e-5)


def test_a_sum_in_place_of_a_mean_is_longer_than_the_parts(two_ranks):
    norms = read(two_ranks / "sum").norms

    assert (norms.big_sq / norms.small_sq).mean() > 2


def test_local_sgd_is_not_taken_for_the_same_data_on_every_rank(two_ranks):
    recorded = read(two_ranks / "local_sgd")

    assert recorded.norms is None
    assert recorded.why == "ranks do not average their gradients in each update"
    assert "same_data" not in {finding.rule_id for finding in checks.run_checks(recorded)}


def test_an_optimizer_of_some_parameters_has_no_noise_scale(two_ranks):
    recorded = read(two_ranks / "in_part")

    assert recorded.norms is None
    assert "other parameters than those whose gradients ranks share" in recorded.why


def test_an_optimizer_that_steps_another_one_makes_one_update(two_ranks):
    recorded = read(two_ranks / "zero")
    small, big = truth(two_ranks, "zero")

    assert recorded.updates == 8
    np.testing.assert_allclose(recorded.norms.small_sq, small[recorded.norms.updates], rtol=1e-4)
    np.testing.assert_allclose(recorded.norms.big_sq, big[recorded.norms.updates], rtol=1e-4)


def test_ranks_that_share_nothing_have_no_norms_and_a_reason(two_ranks):
    recorded = read(two_ranks / "none")

    assert recorded.norms is None
    assert "several ranks" in recorded.why


def test_losses_rates_and_samples_are_those_of_the_training(two_ranks):
    recorded = read(two_ranks / "ddp")

    assert recorded.curves["train loss"].updates.tolist() == list(range(8))
    assert recorded.curves["train loss"].samples.tolist() == [
        8.0 * (update + 1) for update in range(8)
    ]
    assert recorded.curves["lr"].values.tolist() == [0.1]
    assert (recorded.batch, recorded.ranks, recorded.updates, recorded.ended) == (8.0, 2, 8, True)


@pytest.mark.parametrize(
    ("way", "severity"), [("data_parallel", Severity.HIGH), ("tensor_parallel", Severity.INFO)]
)
def test_only_ranks_that_share_gradients_need_samples_of_their_own(two_ranks, way, severity):
    recorded = read(two_ranks / way)
    (found,) = checks.run_checks(recorded)

    assert recorded.norms is None
    assert (found.rule_id, found.severity) == ("whole_data_on_every_rank", severity)
    said = " ".join(map(str, found.more))
    assert ("2 times the data" in said) == (severity is Severity.HIGH)


def test_batch_norm_over_two_samples_per_rank_is_a_mistake_in_the_set_up(two_ranks):
    recorded = read(two_ranks / "batch_norm_of_2")

    (finding,) = checks.run_checks(recorded)
    found = advise([recorded])

    assert recorded.setup["batch_norms"] == [{"layers": 1, "synced": 0, "samples": 2, "gpu": False}]
    assert finding.rule_id == "few_samples_in_batch_norm"
    assert "statistics of 2 samples on each rank" in finding.message
    assert (
        "GroupNorm" in finding.fix
        and "SyncBatchNorm needs GPUs." in finding.fix_more
        and "convert_sync_batchnorm" not in finding.fix
    )
    assert found.stopped and not found.advice
    assert "batch norm over a few samples" in summarise(recorded).noise.why


@pytest.mark.parametrize("way", ["batch_norm_of_64", "group_norm_of_2"])
def test_samples_enough_and_another_norm_are_no_mistake(two_ranks, way):
    assert checks.run_checks(read(two_ranks / way)) == []
