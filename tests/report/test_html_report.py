"""The report as a page."""

import re
from dataclasses import replace

import pytest
from report.made_up import VARIANTS, refused, report

from feedline.analysis.measure.user_code import UserCode, UserFunction
from feedline.analysis.report.html_report import prose, render


def first_screen(made) -> str:
    return render(made).partition('id="findings"')[0]


def test_the_page_begins_with_the_verdict_what_to_change_and_what_it_gives() -> None:
    page = first_screen(report())

    parts = (
        "<h1>Input-bound: Input takes 53\u00a0% of each step.</h1>",
        '<p class="then">Images are decoded to 9 times',
        "<b>Fix</b> Store the images",
        "train.py:41",
        "Only if no larger crop",
        "<b>Gain</b> 176 -&gt; 262 samples/s (248 to 277)",
    )
    places = [page.index(part) for part in parts]
    assert places == sorted(places)
    assert "at most" not in page


def test_the_gain_is_said_once_on_the_first_screen_and_once_with_its_finding() -> None:
    assert [first_screen(made).count("176 -&gt; 262") for made in (report(), refused())] == [1, 0]
    raises = "above the next limit (all CPUs), which this fix also raises"
    assert (
        render(report()).count(f"<b>Gain</b> 176 -&gt; 262 samples/s (248 to 277); {raises}.</p>")
        == 1
    )
    assert render(refused()).count("<b>Gain</b> 176 -&gt; about 298 samples/s") == 2


def test_a_figure_that_is_missing_says_why() -> None:
    pace = replace(
        report().throughput, samples_per_s=None, all_ranks_samples_per_s=None, batch_size=None
    )

    assert (
        first_screen(replace(report(), throughput=pace)).count(
            "<dd>not measured <small>no loader reported it</small></dd>"
        )
        == 2
    )
    assert "no step was recorded" in first_screen(replace(VARIANTS["no steps"](), throughput=pace))


def test_steps_recorded_in_detail_are_not_numbered_as_all_steps() -> None:
    made = report()
    rested = render(replace(made, throughput=replace(made.throughput, steps=5000)))

    assert "These are 1,200 of 5,000 steps, those recorded in detail, side by side." in rested
    assert ">recorded step 0<" in rested and ">step 0<" not in rested
    assert "recorded in detail, side by side" not in render(made) and ">step 0<" in render(made)


def test_a_loader_that_makes_its_samples_out_of_sight_is_not_unseen() -> None:
    loaders = report().loaders
    unseen, none = (render(replace(report(), workers=None, loaders=one)) for one in (loaders, []))

    assert "how this loader makes its samples is not visible" in unseen
    assert "no loader was seen" not in unseen and "no loader was seen" in none


def test_batches_that_are_made_in_one_call_are_not_counted_as_samples() -> None:
    made = report()
    training, *others = made.loaders
    whole = replace(training, settings={**training.settings, "whole_batches": True})
    page = render(replace(made, loaders=[whole, *others]))

    assert "Wall time of single batches" in page and "Number of batches by time." in page
    assert " batches, " in page and "Wall time of single samples" not in page
    assert "Wall time of single samples" in render(made)


def test_shares_of_evaluation_are_not_drawn_beside_shares_of_the_step() -> None:
    code = UserCode(0, 400, functions=[_takes("step", 0.9, "forward"), _takes("score", 0.48)])
    page = render(replace(report(), user_code=code)).partition('id="code"')[2]

    titles = ("<figcaption>The main process<", "<figcaption>Evaluation, share of the main process<")
    assert [page.count(title) for title in titles] == [1, 1]
    for title in titles:
        drawn = page.partition(title)[2].partition("</figure>")[0]
        assert re.findall(r'<rect [^>]* x="([\d.]+)%"', drawn) == ["0"]


def _takes(name: str, part: float, place: str = "evaluation") -> UserFunction:
    """A function of the main process that takes a part of its time."""
    return UserFunction(
        "main", place, name, "train.py", 9, part, part, part, 0.0, None, "", 0, "", []
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "run `feedline env`, then `a < b`.",
            "run <code>feedline env</code>, then <code>a &lt; b</code>.",
        ),
        ("a lone ` of <script>", "a lone ` of &lt;script&gt;"),
        ("takes 3 ms", "takes 3\u00a0ms"),
    ],
)
def test_commands_in_backticks_are_code_and_nothing_else_is_html(text: str, shown: str) -> None:
    assert prose(text) == shown
