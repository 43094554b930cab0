"""``feedline attach`` says of running trainings what their own timers say, and changes nothing."""

import subprocess
import sys

import pytest
from attach.attaching import PROGRAMS, WITHOUT_US, attach

INPUT = ("wait", "epoch_start", "sampler", "dataset", "collate")
POINTS = 0.05


def part(rows: dict, *names: str) -> float:
    return sum(rows[name]["share"] for name in names if name in rows)


def ends(rows: dict, *names: str) -> tuple[float, float]:
    """The interval of a sum of rows, at least as wide as that of the largest."""
    known = [rows[name] for name in names if name in rows]
    middle = part(rows, *names)
    half = max((row["high"] - row["low"]) / 2 for row in known)
    return middle - half, middle + half


def said_by_itself(program: "subprocess.Popen[str]") -> list[float]:
    out, _ = program.communicate(timeout=120)
    line = next(line for line in out.splitlines() if line.startswith("0."))
    return [float(word) for word in line.split()]


@pytest.mark.quiet
@pytest.mark.parametrize(
    ("workers", "method"),
    [
        pytest.param(2, "fork", marks=pytest.mark.long),
        pytest.param(1, "fork", marks=pytest.mark.long),
        pytest.param(2, "spawn", marks=pytest.mark.long),
        pytest.param(0, "none", marks=pytest.mark.long),
    ],
)
def test_shares_are_those_of_the_programs_own_timers(workers, method, start, tmp_path):
    program = start("slow_dataset.py", workers, method, 18, 5)

    seen = attach(program.pid, tmp_path, 12)
    waited, made, slow, *_ = said_by_itself(program)

    low, high = ends(seen["sampled"]["main"], *INPUT)
    assert low - POINTS <= waited <= high + POINTS
    assert seen["limit"].startswith("Input-bound")
    tokenize = next(own for own in seen["user_code"]["functions"] if own["function"] == "tokenize")
    assert tokenize["low"] - POINTS <= slow <= tokenize["high"] + POINTS
    if workers:
        low, high = ends(seen["sampled"]["workers"], "dataset", "collate")
        assert low - POINTS <= made <= high + POINTS
        assert {row["name"] for row in seen["processes"]} >= {
            f"worker {number}" for number in range(workers)
        }


def test_the_function_and_line_that_take_most_are_named(start, tmp_path):
    seen = attach(start("slow_dataset.py", 1, "fork", 60, 5).pid, tmp_path, 10)

    code = (PROGRAMS / "slow_dataset.py").read_text().splitlines()
    findings = [one for one in seen["findings"] if one["cause"] == "user_code"]
    assert findings, seen["printed"]
    finding = findings[0]
    file, _, line = finding["place"].partition(":")
    assert file == "slow_dataset.py"
    assert code[int(line) - 1].strip() in (
        "for step in range(40_000):",
        "total += step * index % 3",
    )
    assert "tokenize() takes" in finding["says"]
    assert "Samples/s are unknown from outside." in seen["printed"]


@pytest.mark.long
def test_losses_are_those_of_a_training_that_nobody_looks_at(start, tmp_path):
    alone = subprocess.run(
        [sys.executable, "slow_dataset.py", "1", "fork", "0", "5"],
        cwd=PROGRAMS,
        env=WITHOUT_US,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()[-5:]
    program = start("slow_dataset.py", 1, "fork", 5, 5)

    attach(program.pid, tmp_path, 3)

    assert program.communicate(timeout=60)[0].split()[-5:] == alone


def test_no_source_and_no_argument_is_in_what_is_written(start, tmp_path):
    program = start("slow_dataset.py", 1, "fork", 60, 5)
    subprocess.run(
        [sys.executable, "-m", "feedline", "attach", str(program.pid), "--seconds", "3", "-q"]
        + ["-o", str(tmp_path / "seen")],
        check=True,
    )

    names = sorted(path.name for path in (tmp_path / "seen").iterdir() if path.name[0] != ".")
    texts = [(tmp_path / "seen" / name).read_text() for name in names]
    assert {"attached.json", "stacks.collapsed", "stacks.speedscope.json"} <= set(names)
    assert not any("total +=" in text for text in texts)
    assert not any(str(PROGRAMS) in text for text in texts)
    shown = subprocess.run(
        [sys.executable, "-m", "feedline", "report", str(tmp_path / "seen")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert shown.startswith(f"slow_dataset.py · process {program.pid} · 1 worker · seen for 3")
    assert "tokenize" in shown
