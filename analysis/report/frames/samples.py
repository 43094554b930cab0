"""The frame ``samples``: those that were looked at in detail."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from feedline.analysis.measure.boundaries import Records
from feedline.analysis.measure.costs import PARTS, FloatArray, SampledDetails
from feedline.analysis.measure.gather import RankMetrics
from feedline.analysis.report.frames.moments import RANK, START, TIME, Moments
from feedline.analysis.report.frames.table import Column, Rows, Table
from feedline.profiler.events import Flag, Stage
from feedline.profiler.store.segment_reader import Process

if TYPE_CHECKING:
    import pandas as pd

_NO_SCHEDSTAT = "the kernel does not report it (no schedstat)"

SAMPLES = Table(
    "samples",
    "One row per sample that was measured in detail, of every loader: all of the first ones, later one in N. Its index in the dataset, or "
    "its file, is not recorded. `read_s` to `dataset_s` sum to `wall_s`.",
    (
        RANK,
        Column("process", "text", "", "What made it: main, or loader0-worker1"),
        Column("worker", "integer", "", "Number of the loader's worker", "the main process made it (num_workers=0)"),
        Column("loader", "integer", "", "Number of the loader, as in the names of `run.report.loaders`"),
        Column("epoch", "integer", "", "Pass over the loader, from 0"),
        Column("batch", "integer", "", "Batch within the epoch, from 0, in the order in which the sampler drew them"),
        TIME,
        START,
        Column("samples", "integer", "", "Samples in it: 1; a batch for `__getitems__`; 0 where the dataset raised or was at its end"),
        Column(
            "in_mean",
            "bool",
            "",
            "true: it counts in the report's costs, because it was made for a training loader and no import or cold start is in it",
        ),
        Column("stands_for", "number", "samples", "How many samples (or batches, for `__getitems__`) it stands for: the weight of its row"),
        Column("wall_s", "number", "s", "How long it took"),
        Column("cpu_s", "number", "s", "CPU time of the thread that made it", "not measured on this system"),
        Column("runqueue_s", "number", "s", "Runnable without a CPU", _NO_SCHEDSTAT),
        Column("blocked_s", "number", "s", "The rest: asleep, waiting for a disk, a lock or a network", _NO_SCHEDSTAT),
        Column("read_s", "number", "s", "Reading files"),
        Column("decode_s", "number", "s", "Decoding"),
        Column("augment_s", "number", "s", "Transforms"),
        Column("user_s", "number", "s", "Inside `feedline.stage(...)`"),
        Column("dataset_s", "number", "s", "The rest of `__getitem__`"),
        Column("read_bytes", "number", "B", "Read by the operations in read_s"),
        Column("decoded_pixels", "number", "pixels", "Decoded; 0: no decoder was seen"),
        Column("output_pixels", "number", "pixels", "Of the last picture before the tensor; 0: unknown"),
    ),
)


def samples(ranks: Mapping[int, RankMetrics]) -> "pd.DataFrame":
    """The frame, in order of rank, process and time."""
    parts = [
        _part(rank, process, first_use)
        for rank in ranks.values()
        for process in [rank.main, *rank.workers]
        for first_use in (False, True)
        if len(process.of(Stage.SAMPLE))
    ]
    found = SAMPLES.frame(parts)
    return found.sort_values(["rank", "process", "start_s"], kind="stable", ignore_index=True)


def _part(rank: RankMetrics, process: Process, first_use: bool) -> Rows:
    rows = process.of(Stage.SAMPLE)
    details = SampledDetails.of(process, frozenset(np.unique(rows["source"]).tolist()), first_use)
    rows = rows[(rows["flags"] & Flag.FIRST != 0) == first_use]
    count = len(rows)
    stages = {name: np.zeros(count) + details.sum(name, "wall") for name in PARTS.values()}
    stages["dataset"] = details.whole["wall"] - sum(stages.values())
    return {
        **Moments.of(rank.rank).columns(rows["start"]),
        **_made_by(process, count),
        "loader": rows["source"],
        "epoch": rows["number"] >> 32,
        "batch": rows["number"] & 0xFFFFFFFF,
        "samples": rows["nbytes"],
        "in_mean": np.isin(rows["source"], list(rank.makers.loaders)) & (first_use == _only_first_use(rank)),
        "stands_for": details.weight,
        **_clocks(rows),
        **{f"{name}_s": values / 1e9 for name, values in stages.items()},
        "read_bytes": details.nbytes.get("read", np.zeros(count)),
        "decoded_pixels": details.decoded,
        "output_pixels": details.output,
    }


def _only_first_use(rank: RankMetrics) -> bool:
    """Whether all samples of the training's loaders are of first use: then those count."""
    rows = [process.of(Stage.SAMPLE) for process in rank.makers.processes]
    return all((one["flags"][np.isin(one["source"], list(rank.makers.loaders))] & Flag.FIRST).all() for one in rows)


def _made_by(process: Process, count: int) -> Rows:
    if not process.is_worker:
        return {"process": ["main"] * count, "worker": np.full(count, -1)}
    loader, worker = int(str(process.header["loader"])), int(str(process.header["worker"]))
    return {"process": [f"loader{loader}-worker{worker}"] * count, "worker": np.full(count, worker)}


def _clocks(rows: Records) -> dict[str, FloatArray]:
    """Wall, CPU, without a CPU, blocked; NaN where it was not measured."""
    wall = rows["wall"] / 1e9
    cpu, runqueue = (np.where(rows[name] >= 0, rows[name] / 1e9, np.nan) for name in ("cpu", "runqueue"))
    return {"wall_s": wall, "cpu_s": cpu, "runqueue_s": runqueue, "blocked_s": np.maximum(wall - cpu - runqueue, 0.0)}
