"""A scaling study as a self-contained HTML file: a figure and its table."""

from pathlib import Path

from feedline.analysis.report import page, phrases
from feedline.analysis.report.figures.throughput import throughput_by_ranks
from feedline.analysis.scaling.study import Study
from feedline.cli import scale_text
from feedline.profiler.printable import printable_in

_HERE = Path(__file__).parent


def render(study: Study) -> str:
    """The whole page."""
    study = printable_in(study)
    return page.render(
        _HERE / "scale.html",
        it=study,
        opening=phrases.opening(study.conclusion),
        about=scale_text.kind(study),
        figure=throughput_by_ranks(study),
        predicted=[one for one in study.predictions if one.samples_per_s is not None],
        meaning=list(scale_text.meaning(study)),
        worth=scale_text.worth,
        interval=scale_text.interval,
        efficiency=lambda one: scale_text.efficiency(study, one),
        to_accuracy=lambda ranks, predicted: scale_text.to_accuracy(study, ranks, predicted),
    )
