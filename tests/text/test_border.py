"""What is shown leaves the program at few places, each of which makes it printable.

New code cannot forget to.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDERS = ("feedline", "profiler", "analysis", "pipelines", "convergence")

#: Places where text may leave, each with the reason why it is safe.
ALLOWED = {
    ("profiler/printable.py", "print"): "say() itself",
    ("analysis/report/console.py", "rich.console"): "the one console",
    ("feedline/cli/outputs.py", "sys.stdout"): "what a file would hold, of which JSON is escaped",
    (
        "feedline/cli/program.py",
        "print",
    ): "the code that the training itself ended with, as Python prints it",
    (
        "pipelines/stores/lmdb.py",
        "print",
    ): "the answer of a child process to its parent, through a pipe",
    ("analysis/report/page.py", "jinja2.Environment"): "the one environment, with its filter",
    ("feedline/cli/parser.py", "argparse.ArgumentParser"): "the base of the one parser",
    (
        "feedline/cli/check/text.py",
        "print",
    ): "annotations of GitHub Actions, which are made printable one by one",
    (
        "feedline/cli/verify/write_guard.py",
        "print",
    ): "an error of the kernel, in which Python escapes the folder's name",
    ("feedline/cli/verify/write_guard.py", "sys.stderr"): "the same",
    ("feedline/cli/env.py", "sys.stdout"): "flushed, not written to",
    ("profiler/session/stop_after.py", "sys.stdout"): "flushed, not written to",
    ("profiler/session/stop_after.py", "sys.stderr"): "flushed, not written to",
    ("feedline/cli/program.py", "sys.stdout"): "flushed, not written to",
    ("feedline/cli/program.py", "sys.stderr"): "the code that the training itself ended with",
    ("profiler/printable.py", "sys.__stderr__"): "handed to say()",
    ("profiler/printable.py", "sys.stderr"): "say() itself",
    ("profiler/files/output.py", "sys.stdout"): "flushed, not written to",
    ("profiler/files/output.py", "sys.stderr"): "flushed, not written to",
    ("pipelines/loaders/take.py", "warnings.warn"): "a file's name, made printable",
    ("pipelines/probes/reader.py", "sys.stdout"): "records to the parent process, through a pipe",
    ("convergence/callbacks.py", "warnings.warn"): "a sentence of ours, without a name in it",
    # Markup is what a page shows as it is.
    (
        "analysis/report/figures/axis.py",
        "Markup",
    ): "the one place that makes elements; their texts and attributes are made printable there",
    ("analysis/report/html_report.py", "Markup"): "embedded(): JSON",
    ("analysis/report/page.py", "Markup"): "our own style sheet and script",
}
NAMES = ("print", "Markup", "pprint")
ATTRIBUTES = (
    "sys.stdout", "sys.stderr", "sys.__stdout__", "sys.__stderr__", "jinja2.Environment", "argparse.ArgumentParser", "warnings.warn",
    "Text.from_markup", "Text.from_ansi", "rich.print", "rich.get_console", "rich.console.Console",
)  # fmt: skip
MODULES = {
    "rich.console": {"Console"},
    "rich": {"print", "get_console", "inspect"},
    "rich.markup": {"render"},
    "rich.progress": {"TextColumn"},
}


def ways_out(tree: ast.AST) -> set[str]:
    """What in a module can show text: the names of ``ALLOWED``."""
    annotations = {
        id(part) for node in ast.walk(tree) for note in notes_of(node) for part in ast.walk(note)
    }
    found = set()
    for node in ast.walk(tree):
        if id(node) in annotations:
            continue
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in NAMES:
            found.add(node.func.id)
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ATTRIBUTES:
            found.add(
                "rich.console"
                if ast.unparse(node).startswith("rich.console")
                else ast.unparse(node)
            )
        if isinstance(node, ast.ImportFrom) and {alias.name for alias in node.names} & MODULES.get(
            node.module or "", set()
        ):
            found.add(str(node.module))
        if (
            isinstance(node, ast.keyword)
            and node.arg in ("markup", "emoji")
            and not (isinstance(node.value, ast.Constant) and not node.value.value)
        ):
            found.add(node.arg)
    return found


def notes_of(node: ast.AST) -> list[ast.AST]:
    given = (getattr(node, "annotation", None), getattr(node, "returns", None))
    return [note for note in given if isinstance(note, ast.AST)]


def modules() -> Iterator[tuple[str, ast.AST]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def test_text_leaves_the_program_only_where_it_is_made_printable() -> None:
    found = {(path, way) for path, tree in modules() for way in ways_out(tree)}
    inside = {
        ("analysis/report/console.py", "rich.progress")
    }  # the column whose text is made printable

    assert found - inside - set(ALLOWED) == set(), (
        "show it with profiler.printable.say or analysis.reports.console.Console"
    )
    assert set(ALLOWED) - found == set(), "no longer needed"


def test_every_way_out_is_seen() -> None:
    source = """
        from rich.console import Console
        from rich.progress import TextColumn
        print(name)
        sys.stderr.write(name)
        Text.from_markup(name)
        Markup(name)
        console.print(name, markup=True)
        jinja2.Environment(autoescape=True)
        argparse.ArgumentParser()
    """
    lines = [line.strip() for line in source.strip().splitlines()]

    assert [len(ways_out(ast.parse(line))) for line in lines] == [1] * len(lines)
    assert ways_out(ast.parse("def show(console: Console, text: Markup) -> Markup: ...")) == set()


def test_templates_switch_nothing_off() -> None:
    pages = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.html")]

    assert len(pages) >= 12
    for path in pages:
        assert not any(
            word in path.read_text()
            for word in ("|safe", "| safe", "autoescape false", "innerHTML", "javascript:")
        ), path
    assert "innerHTML" not in (ROOT / "analysis/report/report.js").read_text()
