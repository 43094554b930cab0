"""Shared by all HTML pages: the templates, and the head with styles and script inline, so that a page loads nothing else."""

from pathlib import Path

import jinja2
from markupsafe import Markup

from feedline.analysis.reports import palette
from feedline.profiler.printable import printable

HERE = Path(__file__).parent


def environment(*folders: Path) -> jinja2.Environment:
    """Templates of these folders, and of this one: ``page_head.html``, which wants ``title`` and ``css``."""
    loader = jinja2.FileSystemLoader([*folders, HERE])
    return jinja2.Environment(
        loader=loader, autoescape=True, finalize=shown, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )


def shown(value: object) -> object:
    """What every ``{{ value }}`` of a template passes through: made printable, unless it is HTML that ``figures/svg.py`` made."""
    return value if isinstance(value, Markup) else printable(value)


def assets() -> dict[str, Markup]:
    """``css`` and ``js`` of a page."""
    return {
        "css": Markup(palette.css() + (HERE / "report.css").read_text(encoding="utf-8")),
        "js": Markup((HERE / "report.js").read_text(encoding="utf-8")),
    }
