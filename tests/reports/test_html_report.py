"""The report as a page."""

from dataclasses import replace

from reports.made_up import VARIANTS, report

from feedline.analysis.reports.html_report import render


def first_screen(made) -> str:
    return render(made).partition('id="findings"')[0]


def test_the_page_begins_with_the_verdict_what_to_change_and_what_it_gives() -> None:
    page = first_screen(report())

    places = [page.index(part) for part in ("holds the training back", "<b>Fix</b> Store the images", "<b>Gain</b> 176 -&gt; at most")]
    assert places == sorted(places)


def test_a_figure_that_is_missing_says_why() -> None:
    pace = replace(report().throughput, samples_per_s=None, all_ranks_samples_per_s=None, batch_size=None)

    assert first_screen(replace(report(), throughput=pace)).count("<dd>not measured <small>no loader reported it</small></dd>") == 2
    assert "no step was recorded" in first_screen(replace(VARIANTS["no steps"](), throughput=pace))
