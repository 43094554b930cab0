"""What every command needs is written once, so that a new command gets it in one line."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("feedline", "profiler", "analysis", "pipelines", "convergence")
OPTIONS = {
    "-o",
    "--output",
    "-f",
    "--force",
    "-q",
    "--quiet",
    "--json",
    "--processes",
    "--dask",
    "--model",
    "--transforms",
}


def trees(holding: str) -> Iterator[tuple[str, ast.Module]]:
    """Modules in which these letters stand."""
    for path in (path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))):
        source = path.read_text()
        if holding in source:
            yield str(path.relative_to(ROOT)), ast.parse(source)


def texts(tree: ast.Module) -> Iterator[str]:
    """String constants, docstrings aside."""
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in documentation
        ):
            yield node.value


@pytest.mark.parametrize(
    ("text", "homes"),
    [
        (" already exists", {"profiler/errors.py"}),
        (
            "cannot write ",
            {"profiler/errors.py", "profiler/session/api.py"},
        ),  # the second: whatever torch raises
        (" cannot be written", set()),
    ],
)
def test_a_place_that_cannot_be_written_to_is_told_in_one_way(text, homes):
    assert {path for path, tree in trees(text) if any(text in one for one in texts(tree))} == homes


def test_options_of_several_commands_are_added_in_one_module():
    added = {
        (path, word.value)
        for path, tree in trees("add_argument")
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "add_argument"
        for word in call.args
        if isinstance(word, ast.Constant) and word.value in OPTIONS
    }
    assert added == {("feedline/cli/options.py", word) for word in OPTIONS}
