"""docs/api.md: its tables are those of the code, and its examples run."""

import ast
import re
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from report_docs import publish

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "api.md"


def test_its_tables_are_those_that_the_code_gives():
    text = PAGE.read_text(encoding="utf-8")

    assert text == publish.renew_below(text, publish.frames()), "renew it: scripts/docs-fields"


def run(block: str, names: dict[str, Any]) -> Any:
    """Execute a block. Returns what its last line gives, as a cell of a notebook would."""
    tree = ast.parse(block)
    last = ast.Expression(tree.body.pop().value) if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "docs/api.md", "exec"), names)
    return None if last is None else eval(compile(last, "docs/api.md", "eval"), names)


@pytest.fixture
def drawn(monkeypatch) -> list[tuple[Any, Any]]:
    """What ``plt.barh`` was given: matplotlib is not needed for feedline, so it may not be there."""
    bars: list[tuple[Any, Any]] = []
    pyplot = ModuleType("matplotlib.pyplot")
    pyplot.barh = lambda names, lengths: bars.append((names, lengths))  # type: ignore[attr-defined]
    pyplot.xlabel = lambda text: None  # type: ignore[attr-defined]
    package = ModuleType("matplotlib")
    package.pyplot = pyplot  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "matplotlib", package)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", pyplot)
    return bars


def test_its_examples_run(mine, sweep, drawn, tmp_path, monkeypatch, capsys):
    for name, there in {"mine": mine, "ddp": mine, "sweep": sweep}.items():
        shutil.copytree(there, tmp_path / "runs" / name)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    blocks = re.findall(
        r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )

    begun, hourly, slow, _, slowest, _, _, findings = [run(block, names) for block in blocks]

    report = names["run"].report
    assert begun is None and (tmp_path / "mine.html").exists()
    assert str(report.verdict) in capsys.readouterr().out
    assert hourly.max() <= names["run"].steps["wall_s"].max()
    assert list(slow.columns) == [False, True] and list(slow.index) == names["run"].stages
    ((stages, lengths),) = drawn
    assert list(stages) == names["run"].stages and sum(lengths) == pytest.approx(
        1e3 * report.step.mean_s
    )
    assert len(slowest) == 10 and slowest["wall_s"].is_monotonic_decreasing
    assert len(names["indices"]) == report.throughput.batch_size
    assert set(names["findings"]["run"]) <= {
        "mine",
        "ddp",
        "sweep (training 1 of 2)",
        "sweep (training 2 of 2)",
    }
    assert findings["count"].sum() <= len(names["findings"])
