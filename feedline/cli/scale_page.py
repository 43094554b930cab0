"""A study of scaling as one HTML file that needs no network: a figure, and the table behind it."""

from pathlib import Path

import jinja2
from markupsafe import Markup

from feedline import analysis
from feedline.analysis.quantities import count, number
from feedline.analysis.reports import palette
from feedline.analysis.reports.figures.scaling import scaling
from feedline.analysis.scaling.study import Study
from feedline.cli import scale_text

HERE = Path(__file__).parent
REPORTS = Path(str(analysis.__file__)).parent / "reports"


def render(study: Study) -> str:
    """The whole page."""
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(HERE), autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.get_template("scale.html").render(
        it=study,
        about=scale_text.kind(study),
        figure=scaling(study),
        predicted=[one for one in study.predictions if one.samples_per_s is not None],
        meaning=list(scale_text.meaning(study)),
        worth=scale_text.worth,
        interval=scale_text.interval,
        efficiency=lambda one: scale_text.efficiency(study, one),
        to_accuracy=lambda ranks, predicted: scale_text.to_accuracy(study, ranks, predicted),
        number=number,
        count=count,
        css=Markup(palette.css() + (REPORTS / "report.css").read_text(encoding="utf-8")),
        js=Markup((REPORTS / "report.js").read_text(encoding="utf-8")),
    )
