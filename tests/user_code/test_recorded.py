"""A slow line of a real training, in its workers and in its loop, and its twin without it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import feedline

pytestmark = pytest.mark.quiet
PROGRAMS = Path(__file__).parents[2] / "benchmarks" / "slow_calls"


def slow_line(name: str) -> str:
    """``own_loop.py:17``."""
    lines = (PROGRAMS / f"{name}.py").read_text().splitlines()
    return f"{name}.py:{next(at for at, line in enumerate(lines, 1) if '# SLOW' in line)}"


def report_of(warm_python: Any, name: str, folder: Path, *options: str) -> dict[str, Any]:
    """The report of one of these programs."""
    ended = warm_python.run(
        *("-m", "feedline", "run", "-q", "-o", folder / "run"),
        *(PROGRAMS / f"{name}.py", "--seconds", "5", *options),
        folder=PROGRAMS,
        cpus=2,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    return json.loads((folder / "run" / "report.json").read_text())  # type: ignore[no-any-return]


def accused(report: dict[str, Any]) -> list[str]:
    """Places that findings about code name."""
    return [one["place"] for one in report["findings"] if one["cause"] in ("user_code", "own_code")]


def test_the_line_of_a_function_in_a_worker_is_named_everywhere(warm_python, tmp_path):
    report = report_of(warm_python, "own_loop", tmp_path)

    told = {one["function"]: one for one in report["user_code"]["functions"]}
    assert told["smooth"]["place"] == "dataset" and told["smooth"]["share"] > 0.8
    assert told["smooth"]["caller"].startswith("prepare (own_loop.py:")
    assert accused(report)[0] in (
        slow_line("own_loop"),
        re.sub(r"\d+$", _before, slow_line("own_loop")),
    )
    rows = report["ledger"]["sample"]["rows"]
    ours = sum(row["s"] for row in rows if row["where"].startswith("dataset/user/smooth"))
    assert ours > 0.7 * report["ledger"]["sample"]["whole_s"]
    assert sum(row["s"] for row in rows) == pytest.approx(
        report["ledger"]["sample"]["whole_s"], rel=1e-3
    )
    step = report["ledger"]["step"]
    assert sum(row["s"] for row in step["rows"]) == pytest.approx(step["whole_s"], rel=1e-3)
    frame = feedline.load(tmp_path / "run").user_code
    assert set(frame[frame["function"] == "smooth"]["kind"]) == {"worker"}


def _before(match: "re.Match[str]") -> str:
    """The line before: the loop and what is in it take about as long."""
    return str(int(match[0]) - 1)


@pytest.mark.long
def test_the_twin_without_the_slow_line_is_not_accused(warm_python, tmp_path):
    assert accused(report_of(warm_python, "own_loop", tmp_path, "--twin")) == []


def test_a_figure_in_the_loop_is_named_with_its_fix(warm_python, tmp_path):
    report = report_of(warm_python, "figure", tmp_path)

    (found,) = (one for one in report["findings"] if one["cause"] == "periodic_stall")
    assert found["says"].startswith("every 5 steps, one step takes ")
    assert found["place"] == slow_line("figure")
    assert found["fix"] == "Keep the values, and draw the figure after training."
