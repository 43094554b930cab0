"""Sphinx builds docs/ into site/:

`scripts/docs`. Nothing is fetched: theme, fonts, scripts and the search index are files of the
site.
"""

import io
import re
import shutil
import tempfile
from contextlib import redirect_stdout, suppress
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

import feedline
from feedline.__main__ import main
from feedline.cli.commands import _parsed

project = "feedline"
author = "the feedline developers"
copyright = "the feedline developers. Apache-2.0"
release = feedline.__version__

root_doc = "index"
exclude_patterns = ["README.md"]  # the list of pages for those who read them in the repository
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

myst_heading_anchors = 4  # headings have the anchors that GitHub gives them
suppress_warnings = ["misc.highlighting_failure"]  # output of commands is no program

autodoc_typehints = "description"
autodoc_member_order = "bysource"
python_use_unqualified_type_names = True

html_theme = "furo"
html_title = "feedline"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
pygments_style, pygments_dark_style = "friendly", "github-dark"


class HelpOf(SphinxDirective):
    """What ``feedline COMMAND --help`` prints."""

    optional_arguments = 2

    def run(self) -> list[nodes.Node]:
        text = help_of(self.arguments)
        return [nodes.literal_block(text, text, language="text")]


def help_of(command: list[str]) -> str:
    """The help of a command; of all commands where none is named."""
    printed = io.StringIO()
    with redirect_stdout(printed), suppress(SystemExit):
        _parsed([*command, "--help"])
    return printed.getvalue().rstrip()


def leading_out(app: Sphinx, name: str, source: list[str]) -> None:
    """Pages of the repository that are none of the site can be had as files (MyST calls that
    ``path:``); kept runs are reports there.
    """

    def link(found: "re.Match[str]") -> str:
        target = (Path(app.srcdir, name).parent / found[1]).resolve()
        return found[0] if target.is_relative_to(app.srcdir) else f"](path:{found[1]})"

    source[0] = re.sub(r"\]\(((?:\.\./)+[^)#]+\.md)\)", link, source[0])
    source[0] = re.sub(
        r"\[([^\]]+)\]\((recorded/[\w-]+)(?:\.html)?\)", r'<a href="\2.html">\1</a>', source[0]
    )


def with_reports(app: Sphinx, error: Exception | None) -> None:
    """Write the reports of the kept runs, as they read today, and copy those that are kept as
    files.
    """
    if error is not None:
        return
    kept, reports = Path(app.srcdir, "recorded"), Path(app.outdir, "recorded")
    reports.mkdir(exist_ok=True)
    for report in kept.glob("*.html"):
        shutil.copy(report, reports)
    for run in kept.glob("*/"):
        with tempfile.TemporaryDirectory() as folder:
            copy = shutil.copytree(run, Path(folder, run.name))
            if main(["report", str(copy), "-q", "-f", "-o", str(reports / f"{run.name}.html")]):
                raise ExtensionError(f"{run} has no report")


def without_substitutions(
    app: Sphinx, what: str, name: str, of: object, options: object, lines: list[str]
) -> None:
    """|g| in a docstring is a norm."""
    lines[:] = [line.replace("|", r"\|") for line in lines]


def setup(app: Sphinx) -> None:
    app.add_directive("help", HelpOf)
    app.connect("source-read", leading_out)
    app.connect("build-finished", with_reports)
    app.connect("autodoc-process-docstring", without_substitutions)
