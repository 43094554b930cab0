"""The rate of a larger batch."""

import math
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from feedline.convergence.fix import TrainingProgress
from feedline.convergence.fixes.lr_rule import FIX, rate_factor, scale_rates, scaled_rate

positive = st.floats(1e-3, 1e6)


@pytest.mark.parametrize(
    ("rule", "factor"), [("linear", 8.0), ("sqrt", math.sqrt(8)), ("noise", 5.5 / 1.5625)]
)
def test_a_batch_eight_times_larger(rule, factor):
    assert rate_factor(rule, 8, base_batch=32, critical_batch=144) == pytest.approx(factor)
    assert scaled_rate(0.1, rule, 8, 32, 144) == pytest.approx(0.1 * factor)


@given(times=st.floats(1, 1e6), base=positive, critical=positive)
def test_the_noise_rule_is_never_above_the_linear_one(times, base, critical):
    assert 1 - 1e-9 <= rate_factor("noise", times, base, critical) <= times * (1 + 1e-9)


def test_the_noise_rule_is_linear_far_below_the_critical_batch_and_flat_far_above():
    assert rate_factor("noise", 8, base_batch=1, critical_batch=1e9) == pytest.approx(8)
    assert rate_factor("noise", 8, base_batch=1e9, critical_batch=1) == pytest.approx(1)


@given(
    rule=st.sampled_from(["linear", "sqrt", "noise"]),
    times=positive,
    base=positive,
    critical=positive,
)
def test_growing_in_two_steps_is_growing_in_one(rule, times, base, critical):
    at_once = rate_factor(rule, times * 4, base, critical)

    assert rate_factor(rule, times, base, critical) * rate_factor(
        rule, 4, base * times, critical
    ) == pytest.approx(at_once)


def two_groups(rate):
    return torch.optim.SGD(
        [{"params": [torch.zeros(1)]}, {"params": [torch.zeros(1)], "lr": 0.5, "initial_lr": 0.25}],
        lr=rate,
    )


def test_every_group_is_scaled_once_and_so_is_one_that_comes_later():
    optimizer = two_groups(0.1)

    scale_rates(optimizer, 4)
    optimizer.add_param_group({"params": [torch.zeros(1)]})

    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.4, 2.0, 0.4])
    assert optimizer.param_groups[1]["initial_lr"] == 1.0


def test_a_rate_that_is_a_tensor_is_scaled_once_in_each_group():
    optimizer = torch.optim.AdamW(
        [{"params": [torch.zeros(1)]}, {"params": [torch.zeros(1)]}],
        lr=torch.tensor(0.1),
        capturable=False,
        foreach=False,
    )

    scale_rates(optimizer, 4)

    assert [float(group["lr"]) for group in optimizer.param_groups] == pytest.approx([0.4, 0.4])


def test_a_scheduler_made_afterwards_starts_from_the_scaled_rate():
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    scale_rates(optimizer, 8)

    assert torch.optim.lr_scheduler.StepLR(optimizer, 1).base_lrs == pytest.approx([0.8])


@pytest.mark.parametrize("factor", [0, -1, math.nan, math.inf])
def test_a_factor_that_would_end_the_training_is_refused(factor):
    with pytest.raises(ValueError, match="above 0"):
        scale_rates(two_groups(0.1), factor)
    with pytest.raises(ValueError, match="above 0"):
        rate_factor("linear", factor)


@dataclass
class Batches:
    base_batch: float | None = None
    critical_batch: float | None = None


@pytest.mark.parametrize(
    "batches",
    [Batches(), Batches(32, None), Batches(0, 144), Batches(32, -1), Batches(32, math.nan)],
)
def test_the_noise_rule_says_what_it_needs(batches):
    with pytest.raises(ValueError, match="needs critical_batch and base_batch"):
        rate_factor("noise", 8, batches.base_batch, batches.critical_batch)


@pytest.mark.parametrize(
    ("text", "ranks", "factor"),
    [
        ("linear", 4, 4),
        ("sqrt", 4, 2),
        ("linear:8", 1, 8),
        ("linear:batch_factor=8", 1, 8),
        ("noise:batch_factor=8:critical_batch=144:base_batch=32", 1, 3.52),
        ("noise:critical_batch=144:base_batch=32", 8, 3.52),
    ],
)
def test_without_a_factor_the_batch_grew_by_the_ranks(training, text, ranks, factor):
    training.ranks = ranks

    FIX.attach(FIX.parse(text), training)

    assert training.acts["rate"](TrainingProgress(0, 0, 100, 8, ranks)) == pytest.approx(factor)


def test_one_rank_and_no_factor_say_what_to_write(training):
    with pytest.raises(ValueError, match="lr_rule=sqrt:batch_factor=8 for 8 times"):
        FIX.attach(FIX.parse("sqrt"), training)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "cubic",
        "linear:0",
        "linear:x",
        "linear:8:9",
        "linear:bc=1",
        "noise:8",
        "noise:8:bc=144",
        "noise:8:b=1",
    ]
    + ["linear:8:batch_factor=8", "linear:critical_batch=1", "bc=1", "noise:batch_factor=x"],
)
def test_a_value_that_is_none_says_what_it_may_be(text):
    with pytest.raises(ValueError, match="linear|above 0|noise rule"):
        FIX.parse(text)


def test_the_older_spelling_still_works():
    assert FIX.parse("noise:8:bc=144:b0=32") == FIX.parse(
        "noise:batch_factor=8:critical_batch=144:base_batch=32"
    )


@pytest.mark.parametrize(
    "text", ["sqrt:8", "noise:batch_factor=8:critical_batch=144:base_batch=32"]
)
def test_the_lines_do_what_the_fix_does(training, text):
    by_hand = torch.optim.SGD([torch.zeros(1)], lr=0.1)

    exec(FIX.lines(FIX.parse(text)), {"optimizer": by_hand})
    FIX.attach(FIX.parse(text), training)
    factor = training.acts["rate"](TrainingProgress(0, 0, 100, 8, 1))

    assert by_hand.param_groups[0]["lr"] == 0.1 * factor != 0.1
