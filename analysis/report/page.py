"""What all HTML pages share: the templates, and a head that loads nothing else.

Styles and script are inline.
"""

import functools
from pathlib import Path

import jinja2
from markupsafe import Markup

from feedline.analysis.report import palette
from feedline.analysis.text import formatting
from feedline.profiler.printable import printable

HERE = Path(__file__).parent
_FILTERS = (
    formatting.count,
    formatting.duration,
    formatting.number,
    formatting.rate,
    formatting.seconds,
    formatting.share,
    formatting.size,
)


@functools.cache  # a template is compiled once, not for each page: 0.2 s
def environment(*folders: Path) -> jinja2.Environment:
    """Return the templates of these folders, and of this one.

    Its ``page.html`` is what every page extends.
    """
    loader = jinja2.FileSystemLoader([*folders, HERE])
    made = jinja2.Environment(
        loader=loader,
        autoescape=True,
        finalize=_shown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {function.__name__: function for function in _FILTERS}
    return made


def render(template: Path, **values: object) -> str:
    """Return a page from a template that extends ``page.html``."""
    return environment(template.parent).get_template(template.name).render(**values, **assets())


def _shown(value: object) -> object:
    """Return what every ``{{ value }}`` of a template passes through.

    It makes it printable, unless it is HTML that ``figures/axis.py`` made.
    """
    return value if isinstance(value, Markup) else printable(value)


def assets() -> dict[str, Markup]:
    """Return ``css`` and ``js`` of a page."""
    return {
        "css": Markup(palette.css() + (HERE / "report.css").read_text(encoding="utf-8")),
        "js": Markup((HERE / "report.js").read_text(encoding="utf-8")),
    }
