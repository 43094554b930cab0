"""The acceptance table as a self-contained HTML file."""

from pathlib import Path

from markupsafe import Markup

from feedline.analysis.quantities import BLANK
from feedline.analysis.reports import page
from feedline.cli.converge import table_text as text
from feedline.cli.converge.table_figure import MARKS, figure
from feedline.convergence.table.result import Table

HERE = Path(__file__).parent


def render(table: Table) -> str:
    """The whole page."""
    return (
        page.environment(HERE)
        .get_template("table.html")
        .render(
            it=table,
            about=text.about(table),
            figure=figure(table),
            marks=Markup(MARKS),
            statements=text.statements(table),
            test=text.test,
            loss=text.loss,
            against=lambda row: text.against(table, row),
            came_out=text.came_out,
            blank=BLANK,
            **page.assets(),
        )
    )
