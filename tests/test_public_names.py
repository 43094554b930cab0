"""The front door: what `import feedline` promises, and how lightly `feedline --help` opens."""

import ast
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import feedline

ROOT = Path(__file__).resolve().parent.parent
HEAVY = {"torch", "numpy", "pandas", "pyarrow"}
HELP_S = 0.3


def declared(path: Path) -> list[str] | None:
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets
        ):
            return ast.literal_eval(node.value)
    return None


def test_the_public_names_are_sorted_and_exist():
    assert feedline.__all__ == sorted(feedline.__all__)
    assert [name for name in feedline.__all__ if not hasattr(feedline, name)] == []


def test_dir_shows_the_public_names_before_one_of_them_was_used():
    done = subprocess.run(
        [sys.executable, "-c", "import feedline; print(*dir(feedline))"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.split() == feedline.__all__


def test_every_list_of_public_names_is_sorted():
    lists = {
        path: declared(path)
        for folder in ("feedline", "profiler", "analysis", "pipelines")
        for path in (ROOT / folder).rglob("*.py")
    }

    assert [
        str(path) for path, names in lists.items() if names is not None and names != sorted(names)
    ] == []


@pytest.mark.parametrize("command", [["-m", "feedline", "--help"], ["-c", "import feedline"]])
def test_opening_feedline_imports_nothing_heavy(command, tmp_path):
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *command], cwd=tmp_path, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr
    imported = {
        line.rsplit("|", 1)[-1].strip().split(".")[0]
        for line in done.stderr.splitlines()
        if line.startswith("import time:")
    }
    assert "feedline" in imported
    assert imported & HEAVY == set()


def test_help_is_printed_within_its_time(tmp_path):
    """In CPU seconds: it waits for nothing, so that they are the wall time of a machine with
    nothing else to do.
    """
    taken = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "feedline", "--help"],
            cwd=tmp_path,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)

    assert min(taken) < HELP_S
