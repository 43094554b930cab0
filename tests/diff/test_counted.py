"""Runs of short steps, most of which were only counted, are compared too."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from golden.record import RUNS
from measure.test_counted_steps import estimate

from feedline.__main__ import main
from feedline.analysis.diff.measures import _unsure_of_samples
from feedline.analysis.measure.counted_steps import RestSamples
from feedline.profiler.events import Flag, Stage
from feedline.profiler.store.layout import MANIFEST, main_segment
from feedline.profiler.store.segment import Segment, window_of

US = 1_000
RECORDED, COUNTED = 8, 400  # steps of a window, and of the rest after it
STEP = 1_000  # us of a step, all of it in the model but a tenth


def short_steps(folder: Path, rests: int, stalls_us: int = 0, seed: int = 0) -> Path:
    """Write the run folder of a training whose recorder rested so often.

    Args:
        folder: that is made.
        rests: how often.
        stalls_us: what a counted step took longer than the recorded ones.
        seed: of how the steps vary, by a twentieth.
    """
    rank = folder / "rank0"
    main_segment(rank).parent.mkdir(parents=True)
    stored = RUNS / "rests" / "rank0"
    shutil.copy(stored / ".feedline", rank)
    facts = json.loads((stored / MANIFEST).read_text())
    (rank / MANIFEST).write_text(json.dumps(facts | {"loaders": []}))
    segment = Segment(main_segment(rank), {"role": "main"})
    vary = np.random.default_rng(seed)
    now = facts["anchors"][0]["perf_counter_ns"]
    for window in range(rests + 1):
        segment.window = window_of(0, window)
        for _ in range(RECORDED):
            step = int(STEP * US * vary.normal(1, 0.05))
            parts = (Stage.FORWARD, 0.4), (Stage.BACKWARD, 0.4), (Stage.OPTIMIZER, 0.1)
            for stage, share in parts:
                flags = Flag.GRAD | Flag.TRAINING if stage is Stage.FORWARD else 0
                segment.add(stage, now, int(share * step), number=1, flags=flags)
                now += int(share * step)
            now += step // 10
        if window < rests:
            wall = int(COUNTED * (STEP + stalls_us) * US * vary.normal(1, 0.01))
            segment.end(segment.add_for_good(Stage.REST, now, 0, cpu=1), Stage.REST, wall, COUNTED)
            now += wall
    segment.close()
    return folder


def compared(before: Path, after: Path) -> dict:
    assert main(["diff", "-q", str(before), str(after), "--json", "diff.json", "-f"]) == 0
    return json.loads(Path("diff.json").read_text())


def quantity(told: dict, id: str) -> dict:
    return next(one for one in told["quantities"] if one["id"] == id)


@pytest.mark.parametrize("rests", [3, 10, 20])
def test_thousands_of_steps_are_enough_however_few_the_rests(tmp_path, monkeypatch, rests):
    """Of 8 to 15 rests, an error of their mean is known, but no drift."""
    monkeypatch.chdir(tmp_path)
    first, last = (short_steps(tmp_path / str(seed), rests, seed=seed) for seed in (1, 2))

    told = compared(first, last)

    assert told["conclusion"].startswith("No change in speed beyond noise: ")
    assert quantity(told, "step/mean")["p"] is not None


def test_time_that_is_in_no_recorded_stage_is_compared_and_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    usual, stalls, more = (
        short_steps(tmp_path / str(us), 20, us, seed=us) for us in (0, 1000, 3000)
    )

    new, grown = compared(usual, stalls), compared(stalls, more)

    assert quantity(new, "stage/unattributed")["outcome"] == "one side"
    assert quantity(grown, "stage/unattributed")["outcome"] == "unknown"
    for told in (new, grown):
        assert " slower than A: " in told["conclusion"]
        assert "Which stage explains it is unknown: " in told["conclusion"]
        assert "per step is in no recorded stage (unattributed)." in told["conclusion"]


def test_stages_that_samples_correct_are_as_unsure_as_these_are():
    """Another recording of the same program may be just below what is corrected."""
    wall = np.full(4, 1500.0 * US)
    stages = {"forward": 0.4 * wall, "other": 0.6 * wall}
    plain = replace(estimate(1500), cost_ns=0.0, longer=False)
    corrected = plain.corrected(stages, RestSamples(400, 0, 360))

    unsure = _unsure_of_samples(SimpleNamespace(estimate=corrected, stages=stages))

    assert _unsure_of_samples(SimpleNamespace(estimate=plain, stages=stages)) == {}
    assert unsure.keys() == stages.keys()
    assert all(0.025 < error < 0.05 for error in unsure.values())
