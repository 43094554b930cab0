"""Commands say what they say as documents: one module lays out text, and none has tables of its own."""

import ast
from pathlib import Path

import pytest

from feedline.analysis.report import document_markdown, document_text
from feedline.analysis.report.console import Console
from feedline.analysis.report.document import Code, Document, Headline, Items, Section, Table

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("feedline", "profiler", "analysis", "pipelines", "convergence")
#: Modules of rich that lay out, which only the renderer of text may use; others show progress.
LAYOUT = {"rich.table", "rich.padding", "rich.columns", "rich.panel", "rich.text", "rich.segment"}
ALLOWED = {"analysis/report/document_text.py", "analysis/report/console.py"}


def test_only_the_renderer_of_documents_lays_out_text():
    found = {
        str(path.relative_to(ROOT))
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module in LAYOUT
    }

    assert found == ALLOWED, "return a Document (analysis/report/document.py) instead"


def text_of(*blocks, width: int = 80) -> str:
    console = Console(width=width, force_terminal=False, color_system=None)
    with console.capture() as captured:
        document_text.show(Document(blocks), console)
    return captured.get()


WIDE = Table(
    (("read, on one core",), ("  cold", "12.5 ms", "1,234"), ("  warm", "0.50 ms", "98,765")),
    ("part", "wall per sample", "samples/s"),
    right=frozenset({1, 2}),
)


def test_a_row_of_one_text_is_a_heading_and_figures_are_aligned():
    assert text_of(WIDE).splitlines() == [
        "part               wall per sample  samples/s",
        "read, on one core",
        "  cold                     12.5 ms      1,234",
        "  warm                     0.50 ms     98,765",
    ]


@pytest.mark.parametrize("width", range(30, 81, 10))
def test_no_figure_is_cut_or_broken_however_narrow_the_terminal(width):
    said = text_of(WIDE, width=width)

    assert max(map(len, said.splitlines())) <= width
    assert all(figure in said for figure in ("12.5 ms", "1,234", "0.50 ms", "98,765"))


def test_a_table_that_is_too_wide_becomes_a_list():
    assert text_of(WIDE, width=20).splitlines() == [
        "- read, on one core",
        "- cold: wall per",
        "  sample 12.5 ms;",
        "  samples/s 1,234",
        "- warm: wall per",
        "  sample 0.50 ms;",
        "  samples/s 98,765",
    ]


def test_lines_of_a_program_are_not_wrapped_and_stay_a_program_in_markdown():
    line = f"loader = Loader({'x' * 90})"
    code = Code((line, "", "    ```"), "Run these:")

    assert f"    {line}\n" in text_of(code)
    assert document_markdown.render(Document((code,))) == (
        f"Run these:\n\n````\n{line}\n\n    ```\n````\n"
    )


def test_a_section_stands_directly_above_its_first_block_and_lists_are_lists():
    blocks = (Headline("Done."), Section("Set-up"), Items(("one", "two"), "To record"))

    assert text_of(*blocks) == "Done.\n\nSet-up\nTo record\n- one\n- two\n"
    assert document_markdown.render(Document(blocks)) == (
        "**Done.**\n\n#### Set-up\n\n**To record**\n\n- one\n- two\n"
    )
