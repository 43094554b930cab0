"""A training that knows how long each of its stages took: feedline has to say the same, within 2 % of each."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.quiet
PROGRAM = Path(__file__).parent / "slow_training.py"
MAIN = ("forward", "loss", "backward", "optimizer", "other")
SAMPLE = ("read", "decode", "augment", "dataset")
METHODS = [("fork", 0), *((method, workers) for method in ("fork", "spawn", "forkserver") for workers in (2, 4))]


def record(folder: Path, method: str, workers: int, *options: str) -> tuple[dict, dict, list[dict]]:
    """Run it under feedline; returns the report, the program's own account of its steps, and of its batches."""
    out, truth = folder / "out.json", folder / "truth"
    command = [
        sys.executable,
        "-m",
        "feedline",
        "run",
        "-q",
        *options,
        "-o",
        folder / "run",
        "--json",
        out,
        PROGRAM,
        method,
        workers,
        truth,
    ]
    subprocess.run([str(part) for part in command], check=True, timeout=120)
    batches = [json.loads(line) for line in Path(f"{truth}.batches").read_text().splitlines()]
    return json.loads(out.read_text()), json.loads(truth.read_text()), batches


def mean(rows: list[dict], name: str) -> float:
    return sum(row.get(name, 0.0) for row in rows) / len(rows)


@pytest.mark.parametrize(("method", "workers"), METHODS)
def test_every_stage_is_reported_within_two_percent(tmp_path, method, workers):
    report, truth, batches = record(tmp_path, method, workers, "--detail", "1")
    stages, sample = report["step"]["stages"], report["workers"]["per_sample"]
    steps, samples = truth["steps"][1:], truth["samples"]  # feedline leaves the first step out of the means, and says so

    assert report["step"]["mean_s"] == pytest.approx(mean(steps, "wall"), rel=0.02)
    assert sum(stages.values()) == pytest.approx(report["step"]["mean_s"], rel=0.01)
    for stage in MAIN:
        assert stages[stage] == pytest.approx(mean(steps, stage), rel=0.02, abs=3e-4), stage
    asked = ("epoch_start", "sampler", "wait", "transport") if workers else ("epoch_start", "sampler", "wait", *SAMPLE, "collate")
    assert sum(stages.get(stage, 0.0) for stage in asked) == pytest.approx(mean(steps, "next"), rel=0.02, abs=3e-4)
    for stage in SAMPLE:
        assert sample[stage]["wall_s"] == pytest.approx(sum(row[stage] for row in batches) / samples, rel=0.02, abs=2e-4), stage
    assert sample["collate"]["wall_s"] == pytest.approx(sum(row["collate"] for row in batches) / samples, rel=0.02, abs=2e-4)
    for stage in (*SAMPLE, "collate"):  # it sleeps
        assert sample[stage]["blocked_s"] > 0.7 * sample[stage]["wall_s"], stage

    assert report["workers"]["batches"] == len(batches) == truth["batches"]
    assert report["workers"]["samples"] == samples
    assert report["workers"]["processes"] == workers == (len({row["worker"] for row in batches}) if workers else 0)
    assert report["throughput"]["steps"] == truth["batches"]


def test_one_sample_in_a_few_tells_the_same_within_its_printed_error(tmp_path):
    report, account, batches = record(tmp_path, "fork", 2)

    samples = account["samples"]
    sample = report["workers"]["per_sample"]
    assert 0 < report["workers"]["samples_in_detail"] < samples
    for stage in SAMPLE:
        truth = sum(row[stage] for row in batches) / samples
        assert abs(sample[stage]["wall_s"] - truth) <= 4 * sample[stage]["error_s"] + 0.06 * truth, stage
