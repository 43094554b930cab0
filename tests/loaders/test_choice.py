"""What a model would get with each loader, and which one is recommended."""

from dataclasses import replace

import pytest

from feedline.pipelines.compare import choice
from feedline.pipelines.compare.comparison_result import (
    Compute,
    Epoch,
    EpochPart,
    LoaderRow,
    PixelDifference,
)
from feedline.pipelines.compare.side_by_side import _predict_training_rate


def row(name: str, rate: float, cpu_s: float, main_s: float = 0.0, **more) -> LoaderRow:
    """A loader that gives ``rate`` samples/s."""
    part = EpochPart(
        samples=1000,
        wall_s=1000 / rate,
        cpu_s=1000 * cpu_s,
        main_s=1000 * main_s,
        first_batch_s=0.1,
    )
    return LoaderRow(
        name,
        "",
        parts=[part],
        epoch=Epoch(1000, 1.0),
        pixels=PixelDifference(48, 0.1, 0.2, 3.0),
        **more,
    )


def choose(rows: list[LoaderRow], compute: Compute | None, cores: float) -> str:
    return choice.choose(rows, compute, cores).message


def fed(rows: list[LoaderRow], compute: Compute, cores: float) -> list[LoaderRow]:
    for one in rows:
        one.feeds = _predict_training_rate(one, compute, cores, "cpu")
    return rows


@pytest.mark.parametrize(
    ("loader", "compute", "cores", "limit", "rate"),
    [
        (row("a", 500, cpu_s=0.002), Compute(step_s=0.0001, cpu_s=0.0001), 8, "loader", 500),
        (
            row("a", 500, cpu_s=0.002, main_s=0.001),
            Compute(step_s=0.009, cpu_s=0.009),
            8,
            "compute",
            100,
        ),
        (row("a", 500, cpu_s=0.004), Compute(step_s=0.002, cpu_s=0.004), 2, "cores", 250),
    ],
)
def test_the_lowest_of_three_limits_is_what_a_training_gets(loader, compute, cores, limit, rate):
    found = _predict_training_rate(loader, compute, cores, "cpu")

    assert found.limit == limit
    assert found.samples_per_s == pytest.approx(rate)


def test_the_gpu_time_of_a_loader_is_taken_from_the_models():
    part = EpochPart(1000, 1.0, 0.1, 0.0, 0.1, gpu_s=1.0)

    found = _predict_training_rate(
        LoaderRow("dali-gpu", "", parts=[part]), Compute(0.001, 0.0), 8, "cuda:0"
    )

    assert found.limits["compute"] == pytest.approx(500)


def test_the_fastest_is_taken_when_no_model_is_given():
    assert choose([row("pillow-v1", 300, 0.006), row("dali-cpu", 600, 0.003)], None, 2).startswith(
        "Use dali-cpu: 600 samples/s, 2.00 times as fast as pillow-v1"
    )


def test_of_loaders_that_are_alike_the_one_with_the_fewest_cpu_seconds_is_taken():
    said = choose(
        [row("pillow-v1", 300, 0.006), row("a", 600, 0.003), row("b", 590, 0.002)], None, 2
    )

    assert said == (
        "Use b: 590 samples/s, 1.97 times as fast as pillow-v1; a is about as fast, but needs more "
        "CPU time."
    )


def test_the_present_loader_stays_when_the_model_is_the_limit():
    compute = Compute(step_s=0.02, cpu_s=0.01)

    said = choose(
        fed([row("pillow-v1", 300, 0.006), row("dali-cpu", 600, 0.003)], compute, 16), compute, 16
    )

    assert said.startswith("Keep pillow-v1: the model takes 50 samples/s and gets 50 with it")


def test_on_shared_cores_the_loader_that_leaves_most_to_the_model_is_taken():
    compute = Compute(step_s=0.002, cpu_s=0.004)
    slow_and_cheap, fast_and_dear = row("cheap", 400, 0.001), row("dear", 900, 0.006)

    said = choose(
        fed([row("pillow-v1", 300, 0.006), slow_and_cheap, fast_and_dear], compute, 2), compute, 2
    )

    assert said.startswith("Use cheap: the model would get 400 samples/s, 2.00 times as fast")


@pytest.mark.parametrize(
    "fault",
    [{"missing": ("RandAugment: no",)}, {"why": "broke down"}],
)
def test_a_loader_with_a_fault_is_never_recommended(fault):
    assert choose(
        [row("pillow-v1", 300, 0.006), row("fast", 900, 0.001, **fault)], None, 2
    ).startswith("Keep pillow-v1")


def test_what_a_loader_would_bring_if_less_will_do_is_said_with_what_it_leaves_out():
    said = choose(
        [
            row("pillow-v1", 300, 0.006),
            row("fast", 900, 0.001, missing=("Lambda: no counterpart",)),
        ],
        None,
        2,
    )

    assert said.endswith(" fast would be 3.00 times as fast, but does not support Lambda.")


def test_the_upper_bound_is_never_recommended():
    assert choose([row("pillow-v1", 300, 0.006), row("synthetic", 1e6, 1e-6)], None, 2).startswith(
        "Keep pillow-v1"
    )


def test_the_only_loader_that_was_measured_is_not_said_to_be_no_slower_than_others():
    assert (
        choose([row("pillow-v1", 300, 0.006)], None, 2)
        == "Keep pillow-v1: 300 samples/s; no other loader was measured."
    )
    assert choice.choose([row("dali-cpu", 300, 0.006)], None, 2) == choice.Choice(
        "Only dali-cpu was measured (300 samples/s), so there is nothing to compare it with."
    )


def test_a_loader_that_shares_the_first_place_is_kept():
    found = choice.choose([row("dali-cpu", 107, 0.001), row("pillow-v1", 100, 0.006)], None, 2)

    assert found.takes == "" and found.message.endswith(
        "no other loader that supports the full transform is clearly faster (dali-cpu: 1.07 times "
        "as fast)."
    )


def test_a_loader_that_is_taken_is_named_apart():
    assert (
        choice.choose([row("dali-cpu", 200, 0.001), row("pillow-v1", 100, 0.006)], None, 2).takes
        == "dali-cpu"
    )


def rounds(name: str, *rates: float, cpu_s: float = 0.003, **more) -> LoaderRow:
    """A loader that gave these samples/s, round by round."""
    parts = [EpochPart(1000, 1000 / rate, 1000 * cpu_s, 0.0, 0.1) for rate in rates]
    return LoaderRow(
        name,
        "",
        parts=parts,
        epoch=Epoch(1000, 1.0),
        pixels=PixelDifference(48, 0.1, 0.2, 3.0),
        **more,
    )


OVERLAPS = (
    rounds("pillow-v1", 278, 290, 300, 310, 331, 500, 700, 900, 1701),
    rounds("dali-cpu", 494, 580, 620, 660, 694, 800, 900, 1000, 1194),
)


def test_what_the_rounds_do_not_show_is_not_said_and_both_intervals_are():
    found = choice.choose(OVERLAPS, None, 2)

    assert found.takes == ""
    assert found.message == (
        "Keep pillow-v1: 331 samples/s; dali-cpu shows no difference beyond the spread of the "
        "rounds, 694 samples/s (580 to 1,000) against "
        "331 (290 to 900), and more rounds (--rounds 18) may."
    )


def test_the_same_holds_for_what_a_model_would_get():
    compute = Compute(step_s=1e-5, cpu_s=1e-5)

    found = choice.choose(fed([replace(one) for one in OVERLAPS], compute, 64), compute, 64)

    assert (
        found.takes == ""
        and "times as fast" not in found.message
        and "(580 to 1,000) against 331 (290 to 900)" in found.message
    )


def test_a_loader_that_less_would_do_for_is_named_only_if_it_is_clearly_faster():
    pillow, dali = OVERLAPS

    assert "does not support" not in choose(
        [pillow, replace(dali, missing=("Lambda: no counterpart",))], None, 2
    )


def test_one_that_is_cheaper_but_not_clearly_faster_than_the_present_one_is_not_taken():
    """It is about as fast as the best, whose interval lies above that of the present one; its own
    does not.
    """
    now = rounds("pillow-v1", *[300] * 4, 310, *[320] * 4)
    best, wide = (
        rounds("best", *[600] * 9),
        rounds("wide", *[290] * 2, *[590] * 5, *[640] * 2, cpu_s=0.001),
    )

    assert choice.choose([now, best, wide], None, 2).takes == "best"


def test_cpu_time_is_compared_only_where_its_intervals_lie_apart():
    unsteady = [
        EpochPart(1000, 1000 / 600, 1000 * cpu_s, 0.0, 0.1)
        for cpu_s in (0.001, 0.001, *[0.002] * 5, 0.009, 0.009)
    ]
    a = replace(rounds("a", *[600] * 9), parts=unsteady)

    said = choose([rounds("pillow-v1", *[300] * 9), a, rounds("b", *[600] * 9)], None, 2)

    assert "b is about as fast" in said and "CPU time" not in said
