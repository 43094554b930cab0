"""The frame ``steps``: steps x stages."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from feedline.analysis.intervals import IntArray
from feedline.analysis.measure.gather import RankMetrics, throughput
from feedline.analysis.measure.rested import FloatArray
from feedline.analysis.measure.stages import STEP_STAGES
from feedline.analysis.measure.steps import Steps
from feedline.analysis.report.frames.moments import RANK, START, TIME, Moments
from feedline.analysis.report.frames.table import Column, Rows, Table

if TYPE_CHECKING:
    import pandas as pd

STEPS = Table(
    "steps",
    "One row per step that was recorded, in order. The columns `<stage>_s` sum to `wall_s`; `run.stages` lists them.",
    (
        RANK,
        Column("step", "integer", "", "Number of the step from 0. Steps that were only counted have a number and no row"),
        TIME,
        START,
        Column("wall_s", "number", "s", "How long it took, without evaluation in it"),
        Column("batches", "integer", "", "Batches that the loader handed over in it"),
        Column("samples", "integer", "", "Samples in them; 0 if their number is unknown, or if no batch was handed over"),
        Column("in_mean", "bool", "", "true: it counts in the report's means; the first steps, which warm up, do not"),
        Column(
            "stands_for",
            "number",
            "steps",
            "How many steps of the run this one stands for: 1, or more where most steps were only counted (short steps, long runs). "
            "Use it as the weight of a mean; over the rows of one rank, it sums to the steps of that rank "
            "(`run.report.throughput.steps` of the rank shown). Where steps were only counted, `wall_s` of the "
            "others includes what recording them cost (`run.report.step.sampled.recording_s`), which the report's means leave out",
        ),
        Column("<stage>_s", "number", "s", 'Time in this stage: wait_s, forward_s, ...; mixup_s for your `feedline.stage("mixup")`'),
    ),
)


def steps(ranks: Mapping[int, RankMetrics]) -> "tuple[pd.DataFrame, list[str]]":
    """The frame, and its columns of stages in the order of a step."""
    stepped = [(rank, rank.steps) for rank in ranks.values() if rank.steps is not None]
    names = dict.fromkeys(name for rank, _ in stepped for name in rank.stages)
    ordered = [*(name for name in STEP_STAGES[:-1] if name in names), *(name for name in names if name not in STEP_STAGES), "other"]
    columns = {name: column_of(name) for name in ordered if name in names}
    parts = [_part(rank, found, columns) for rank, found in stepped]
    return STEPS.frame(parts, list(columns.values())), list(columns.values())


def column_of(stage: str) -> str:
    """``wait_s`` for ``wait``. A user's stage may be called ``wall`` or ``start``."""
    taken = {column.name for column in STEPS.fixed}
    return f"{stage}_stage_s" if f"{stage}_s" in taken else f"{stage}_s"


def numbers(rank: RankMetrics, found: Steps) -> IntArray:
    """int64 [n]: the number of each recorded step, steps that were only counted before it included."""
    rests = rank.counted
    before = np.concatenate([[0], np.cumsum(rests.steps)])
    return np.asarray(np.arange(len(found.wall)) + before[np.searchsorted(rests.start, found.start, "left")])


def stands_for(rank: RankMetrics, found: Steps) -> FloatArray:
    """float64 [n]: how many steps of the run each recorded one stands for."""
    kept = throughput(rank).steps - rank.counted.number
    each = np.full(len(found.wall), kept / max(len(found.wall), 1))
    if rank.estimate is not None:
        each[rank.estimate.alike] += rank.counted.number / rank.estimate.alike.sum()
    return each


def _part(rank: RankMetrics, found: Steps, columns: Mapping[str, str]) -> Rows:
    return {
        **Moments.of(rank.rank).columns(found.start),
        "step": numbers(rank, found),
        "wall_s": found.wall / 1e9,
        "batches": found.batches,
        "samples": found.samples,
        "in_mean": np.arange(len(found.wall)) >= rank.first,
        "stands_for": stands_for(rank, found),
        **{columns[name]: values / 1e9 for name, values in rank.stages.items()},
    }
