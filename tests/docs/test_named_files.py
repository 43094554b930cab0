"""A file of the product that a comment or a docstring names is there, under that name."""

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator

from docs.pages import ROOT

FOLDERS = ("feedline", "profiler", "analysis", "pipelines", "convergence")
NAMED = re.compile(r"(?<![\w/*.])[\w/.]*\w\.py\b")
#: Files of Python, torch and other projects, by the folder that the name begins with.
OF_OTHERS = ("torch/", "multiprocessing/", "python3.11/", "timm/", "apex/", "bin/")


def told(source: str) -> Iterator[str]:
    """Comments and docstrings of a module."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            yield ast.get_docstring(node) or ""


def test_files_that_comments_and_docstrings_name_are_there():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    ends = {f"/{path}"[at:] for path in listed.stdout.split() for at in slashes(f"/{path}")}
    missing = [
        f"{path.relative_to(ROOT)}: {name}"
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        for text in told(path.read_text())
        for name in NAMED.findall(text)
        if f"/{name}" not in ends and not name.startswith(OF_OTHERS)
    ]
    assert not missing


def slashes(path: str) -> list[int]:
    return [at for at, letter in enumerate(path) if letter == "/"]
