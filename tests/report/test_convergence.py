"""What the reports say of a training's convergence."""

import re
from dataclasses import replace

import pytest
from report.made_up import VARIANTS, report
from report.made_up_training import curve, curves, mistaken, noise, summary, without_scale, wrong

from feedline.analysis.convergence.training_record import ConvergenceSummary
from feedline.analysis.report.figures.axis import YAxis, short_count
from feedline.analysis.report.figures.batch_size import batch_efficiency, noise_scale
from feedline.analysis.report.figures.loss_curve import _panels, loss_curve
from feedline.analysis.report.html_report import render as html
from feedline.analysis.report.of_convergence import mistakes, sentences
from feedline.analysis.report.terminal import render as text


def tips(figure: object) -> list[str]:
    return re.findall(r'data-tip="([^"]*)"', str(figure))


def told(made: ConvergenceSummary) -> list[str]:
    plain = report()
    whole = replace(
        plain, throughput=replace(plain.throughput, steps=made.updates), convergence=made
    )
    return [*sentences(whole), *mistakes(whole)]


def test_losses_share_a_panel_and_metrics_of_another_magnitude_do_not() -> None:
    drawn = [[one.name for one in panel.curves] for panel in _panels(curves())]

    assert drawn == [
        ["train loss", "eval loss"],
        ["gradient norm"],
        ["val/top5 accuracy of a long name", "val/accuracy"],
        ["lr"],
    ]


def test_the_curves_are_drawn_three_times_and_read_out_alike() -> None:
    drawn = dict(loss_curve(curves()))

    assert list(drawn) == ["samples", "updates", "time"]
    assert (
        "seconds since the first update" not in drawn["time"]
        and "minutes since the first update" in drawn["time"]
    )
    read = tips(drawn["samples"])
    assert len(read) == 60 and read == tips(drawn["updates"]) == tips(drawn["time"])
    assert read[-1].startswith(
        "5,017,600 samples, 9,799 updates, 34 min 34 s: train loss 0.0217, eval loss 0.287, "
        "gradient norm"
    )
    assert "eval loss" not in read[0]  # it was not evaluated yet


def test_a_learning_rate_holds_until_it_changes_and_to_the_end() -> None:
    losses = curve("train loss", [2.0, 1.5, 1.0, 0.5])
    constant, stepped = (
        re.findall(r'd="([^"]*)"', str(dict(loss_curve([losses, curve("lr", values)]))["updates"]))
        for values in ([0.1], [0.1, 0.01])
    )

    ends = [point.split()[0] for point in constant[-1].removeprefix("M").split("L")]
    heights = [point.split()[1] for point in constant[-1].removeprefix("M").split("L")]
    assert ends[-1] == losses_end(constant) and len({*heights}) == 1
    corners = stepped[-1].removeprefix("M").split("L")
    assert len(corners) == 4 and corners[1].split()[1] == corners[0].split()[1]


def losses_end(drawn: list[str]) -> str:
    return drawn[0].split("L")[-1].split()[0]


def test_a_curve_of_one_value_or_none_is_no_figure() -> None:
    assert loss_curve([curve("train loss", [1.0]), curve("lr", [])]) == []


@pytest.mark.parametrize(
    ("values", "axis"),
    [
        ([0.02, 2.3], (0.02 / 1.15, 2.3 * 1.15, True)),
        ([0.5, 2.3], (0.5, 2.5, False)),
        ([-0.9, 2.3], (-1.0, 3.0, False)),
        ([0.0, 2.3], (0.0, 2.5, False)),
        ([0.7], (0.2, 1.2, False)),
        ([0.0], (0.0, 1.0, False)),
    ],
)
def test_an_axis_is_logarithmic_beyond_a_decade_of_positive_values_and_ends_at_round_numbers(
    values, axis
) -> None:
    upward = YAxis.over(values, 190)

    assert (upward.low, upward.high, upward.log) == pytest.approx(axis)
    assert upward.y(upward.high) == 0 and upward.y(upward.low) == 190


def test_counts_of_an_axis_are_short() -> None:
    assert [short_count(tick) for tick in (0, 0.5, 500, 20_000, 1_500_000, 2e9)] == [
        "0",
        "0.5",
        "500",
        "20 k",
        "1.5 M",
        "2 G",
    ]


def test_windows_of_the_noise_scale_tell_their_interval_or_their_bound() -> None:
    read = tips(noise_scale(noise(), 512.0, 5e6))

    assert read[0].startswith(
        "noise scale at most 70.0 (the noise is too small to be seen beside the gradient), at "
        "125,440 samples"
    )
    assert read[1] == "noise scale 104 (65.2 to 177), at 376,320 samples, from 490 updates"
    assert read[-1].startswith("noise scale at least 2,900")


def test_an_interval_without_an_end_does_not_stretch_the_axis() -> None:
    figure = str(noise_scale(noise(), 512.0, 5e6))

    assert "1,000" in figure and not re.search(r">\d+e\+\d+<", figure)


def test_nothing_is_drawn_of_a_noise_scale_that_was_not_measured() -> None:
    unseen = without_scale().noise

    assert noise_scale(unseen, 512.0, 5e6) is None
    assert batch_efficiency(unseen, 512.0) is None


def test_the_price_of_batches_is_read_out_with_the_runs_own_among_them() -> None:
    read = tips(batch_efficiency(noise(), 512.0))

    assert (
        "this run&#39;s batch of 512: 2.07 times the minimum samples (1.18 to 5.90), 1.94 times "
        "the minimum updates" in read
    )
    assert (
        "a batch of 1,024: 3.13 times the minimum samples (1.35 to 10.8), 1.47 times the minimum "
        "updates" in read
    )


def test_the_terminal_says_loss_price_and_the_first_mistakes() -> None:
    curves, price, *wrongs = told(replace(summary(), checks=wrong() * 3))

    assert curves.startswith(
        "9,800 updates (100 epochs): train loss 2.30 to 0.0217 (without 3 values: NaN or infinite)"
    )
    assert "it needs about 2.1 times the samples of a very small batch" in price
    assert len(wrongs) == 3
    assert "missing_set_epoch: sampler.set_epoch(epoch) before each epoch's loop" in wrongs


def test_a_run_without_a_noise_scale_gets_two_lines_that_say_what_it_needs() -> None:
    assert told(without_scale()) == [
        "9,800 updates (100 epochs): train loss 0.700 to 0.700.",
        "Noise scale: not measured; it needs several ranks or gradient accumulation.",
    ]


def test_epochs_of_a_data_set_without_an_end_are_not_counted() -> None:
    endless = replace(without_scale(), samples_per_epoch=10**10)

    assert told(endless)[0] == "9,800 updates, 5,017,600 samples: train loss 0.700 to 0.700."


def test_nothing_trained_says_nothing() -> None:
    assert sentences(report()) == mistakes(report()) == []
    assert "Convergence" not in text(report()) and 'id="convergence"' not in html(report())


def test_a_mistake_that_is_a_finding_already_is_not_told_twice() -> None:
    page = html(VARIANTS["training mistaken"]())

    assert (
        page.count("all 4 ranks train on the same samples")
        + page.count("All 4 ranks train on the same samples")
        == 1
    )
    assert "</code>: see the <a" in page
    assert "set_epoch was not called" in page
    assert "is unknown: the gradients are not a mean over distinct samples" in page


def test_a_mistake_outside_the_findings_has_its_fix_in_the_section() -> None:
    page = html(replace(report(), convergence=mistaken()))

    assert (
        "All 4 ranks train on the same samples" in page and "Give each rank its own samples" in page
    )


def test_what_is_wrong_with_the_set_up_is_no_share_of_the_step() -> None:
    page = html(VARIANTS["training mistaken"]())

    assert 'title="the training does not do what was intended"' in page


def test_fixes_and_lost_values_are_told() -> None:
    page = html(VARIANTS["training"]())

    assert "<code>--fix warmup=5ep,lr_rule=sqrt</code>" in page
    assert "Not shown: 3 values of train loss (NaN or infinite)." in page
