"""What other programs on the machine do to a training is said of them, and changes nothing else
that is said first.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted import photos
from planted.neighbor import allowed, busy
from warm_python import WarmPython

from feedline.analysis.text.formatting import seconds

PROGRAMS = Path(__file__).parent / "programs"
IMAGES = str(Path(__file__).parents[2] / "benchmarks" / "faults" / "programs" / "images.py")
Report = dict[str, Any]


def test_a_program_on_the_only_cpu_is_named_as_what_holds_the_training_back(warm_python, tmp_path):
    with busy(*allowed(1)):
        report = recorded(warm_python, tmp_path, 1, "sums_in_turns.py", 60)

    use, found = report["cpus"], [one["cause"] for one in report["findings"]]
    # beside the function that takes most of a sample, which is the training's own
    assert [one for one in found if one != "user_code"][0] == "busy_neighbors", report["verdict"]
    assert (
        use["allowed"] == 1 and use["others"] > 0.2 and use["own"] < 0.8
    )  # one loop beside two processes
    assert use["own"] + use["others"] + use["free"] == pytest.approx(1, abs=0.1)
    total, limits = (
        report["workers"]["per_sample"]["total"],
        {roof["id"]: roof["says"] for roof in report["roofline"]["roofs"]},
    )
    assert limits["workers"].endswith(f"excluding {seconds(total['runqueue_s'])} waiting for a CPU")
    assert "cpu_saturated" not in [finding["cause"] for finding in report["findings"]]


@pytest.mark.quiet
def test_what_waits_for_a_cpu_after_the_last_step_is_no_part_of_the_steps(warm_python, tmp_path):
    with busy(*allowed(1)):
        report = recorded(warm_python, tmp_path, 1, "infers_afterwards.py", 40, 300)

    (neighbors,) = [
        one for one in report["findings"] if one["cause"] == "busy_neighbors"
    ]  # beside evaluation_time, which also holds
    waits = next(one["value"] for one in neighbors["evidence"] if one["id"] == "waiting_for_cpu_s")
    assert 0.2 < waits / report["step"]["mean_s"] < 0.9, report["verdict"]
    assert report["step"]["runqueue_s"] <= waits * 1.001


@pytest.mark.quiet
# how long threads spin is up to the scheduler: collate took 11 ms instead of 93 to 124 on one and
# the same machine
@pytest.mark.long
def test_threads_that_spin_for_a_cpu_are_named_and_one_thread_is_faster(warm_python, tmp_path):
    program = [*of_arrays(tmp_path)[:2], 2]
    with busy(*allowed(2)):
        report = recorded(warm_python, tmp_path, 2, *program)
        advised = recorded(warm_python, tmp_path, 2, *program, "healthy")

    first = report["findings"][0]
    assert first["cause"] == "slow_for_its_bytes", report["verdict"]
    assert "torch.set_num_threads(1)" in first["fix"] and "other programs" in str(first["more"])
    assert advised["step"]["mean_s"] < 0.5 * report["step"]["mean_s"]
    assert "slow_for_its_bytes" not in [finding["cause"] for finding in advised["findings"]]


def of_sums(folder: Path) -> list[object]:
    return ["sums_in_turns.py", 80]


def of_arrays(folder: Path) -> list[object]:
    (folder / "arrays").mkdir(exist_ok=True)
    for number in range(64):
        np.save(
            folder / f"arrays/{number}.npy",
            np.random.default_rng(number).random((200, 200), np.float32),
        )
    return ["small_arrays.py", folder / "arrays", 3]


def of_photos(folder: Path) -> list[object]:
    there = folder / "photos"
    return [
        IMAGES,
        there if there.exists() else photos.write(there, 960, 800, 8),
        "--size",
        512,
        "--batch",
        4,
        "--steps",
        50,
    ]


@pytest.mark.quiet
@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("made", [of_sums, of_arrays, of_photos])
def test_five_runs_alone_and_five_beside_a_neighbor_begin_alike_or_name_it(
    warm_python, made: Callable[[Path], list[object]], tmp_path
):
    program = made(tmp_path)

    alone = [first(recorded(warm_python, tmp_path, 2, *program)) for _ in range(5)]
    with busy(allowed(2)[-1]):
        beside = [first(recorded(warm_python, tmp_path, 2, *program)) for _ in range(5)]

    causes = {rule_id for rule_id, names in [*alone, *beside] if not names}
    assert len(causes) <= 1, [*alone, *beside]


def first(report: Report) -> tuple[str, bool]:
    """The first finding's cause, and whether it names the neighbor."""
    finding = report["findings"][0]
    return finding["cause"], "other programs" in finding["says"] + str(finding["more"]) + finding[
        "fix"
    ]


def recorded(
    warm_python: WarmPython, folder: Path, cpus: int, program: str, *args: object
) -> Report:
    """The report of a run of one of the programs."""
    out = folder / "report.json"
    command = (
        "-m",
        "feedline",
        "run",
        "-q",
        "-f",
        "-o",
        folder / "run",
        "--json",
        out,
        PROGRAMS / program,
        *args,
    )
    ended = warm_python.run(*command, folder=folder, cpus=cpus)
    assert ended.returncode == 0, ended.stderr[-2000:]
    report: Report = json.loads(out.read_text())
    return report
