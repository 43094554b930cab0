"""The frames of what a run recorded: steps, samples, collectives and gauges.

Each covers all ranks. Those of its report are in report_frames.py.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from feedline.analysis.intervals import BoolArray, FloatArray, IntArray
from feedline.analysis.measure.boundaries import Records
from feedline.analysis.measure.costs import SampledDetails
from feedline.analysis.measure.rank_metrics import RankMetrics, throughput
from feedline.analysis.measure.stages import STAGE_OF_DETAIL, STEP_STAGES
from feedline.analysis.measure.steps import Steps
from feedline.analysis.ranks.aligned_clocks import RankArrivals
from feedline.analysis.ranks.cross_rank import combine
from feedline.analysis.ranks.partition import Partition
from feedline.analysis.ranks.read_collectives import collectives_of
from feedline.analysis.report.report_frames import Column, FrameTable, Rows
from feedline.analysis.traces.collectives import PHASES, Collectives, operation
from feedline.profiler.errors import FeedlineError
from feedline.profiler.events import Flag, Stage
from feedline.profiler.samplers.gauge_reader import read_gauges
from feedline.profiler.store.layout import GAUGES as FILE
from feedline.profiler.store.run_folder import Rank
from feedline.profiler.store.segment_reader import Process

if TYPE_CHECKING:  # pandas takes a second of CPU: it is imported when a frame is asked for
    import pandas as pd

_NAT = int(np.iinfo(np.int64).min)  # pandas' NaT
_NO_SCHEDSTAT = "the kernel does not report it (no schedstat)"
_UNENDED = "its end was not seen"
_NOT_COMPARABLE = (
    "not comparable with other ranks: their records are missing, or clocks cannot be compared"
)

_RANK = Column(
    "rank",
    "integer",
    "",
    'Number of the rank. Write `frame["rank"]`: `frame.rank` is a method of pandas',
)
_TIME = Column(
    "time",
    "time",
    "",
    "Date and time (UTC) of its beginning; for gauges, of the reading",
    "the run's manifest has no date",
)
_START = Column(
    "start_s",
    "number",
    "s",
    "The same moment, since the recording of this rank began; of several trainings in a process, "
    "since this one began",
)


@dataclass(frozen=True)
class _MomentColumns:
    """Turns a rank's own times, ns, into those of frames.

    Attributes:
        rank: its number.
        origin: own time at which its recording began.
        begun: the same by the calendar, ns since 1970; None: unknown.
    """

    rank: int
    origin: int
    begun: int | None

    @classmethod
    def of(cls, rank: Rank) -> "_MomentColumns":
        anchors = rank.manifest.anchors
        if anchors:
            return cls(rank.number, anchors[0]["perf_counter_ns"], anchors[0]["time_ns"])
        first = min(
            (process.records["start"].min() for process in rank.processes if len(process.records)),
            default=0,
        )
        return cls(rank.number, int(first), None)

    def columns(self, at: IntArray) -> dict[str, np.ndarray]:
        """Return ``rank``, ``time`` and ``start_s`` of these moments.

        Args:
            at: int64 [n], own time, ns.
        """
        since = at - self.origin
        time = np.full(len(at), _NAT) if self.begun is None else since + self.begun
        return {"rank": np.full(len(at), self.rank), "time": time, "start_s": since / 1e9}


SAMPLES = FrameTable(
    "samples",
    "One row per sample that was measured in detail, of every loader: all of the first ones, "
    "later one in N. Its index in the dataset, or "
    "its file, is not recorded. `read_s` to `dataset_s` sum to `wall_s`.",
    (
        _RANK,
        Column("process", "text", "", "What made it: main, or loader0-worker1"),
        Column(
            "worker",
            "integer",
            "",
            "Number of the loader's worker",
            "the main process made it (num_workers=0)",
        ),
        Column(
            "loader", "integer", "", "Number of the loader, as in the names of `run.report.loaders`"
        ),
        Column("epoch", "integer", "", "Pass over the loader, from 0"),
        Column(
            "batch",
            "integer",
            "",
            "Batch within the epoch, from 0, in the order in which the sampler drew them",
        ),
        _TIME,
        _START,
        Column(
            "samples",
            "integer",
            "",
            "Samples in it: 1; a batch for `__getitems__`; 0 where the dataset raised or was at "
            "its end",
        ),
        Column(
            "in_mean",
            "bool",
            "",
            "true: it counts in the report's costs, because it was made for a training loader and "
            "no import or cold start is in it",
        ),
        Column(
            "stands_for",
            "number",
            "samples",
            "How many samples (or batches, for `__getitems__`) it stands for: the weight of its "
            "row",
        ),
        Column("wall_s", "number", "s", "How long it took"),
        Column(
            "cpu_s",
            "number",
            "s",
            "CPU time of the thread that made it",
            "not measured on this system",
        ),
        Column("runqueue_s", "number", "s", "Runnable without a CPU", _NO_SCHEDSTAT),
        Column(
            "blocked_s",
            "number",
            "s",
            "The rest: asleep, waiting for a disk, a lock or a network",
            _NO_SCHEDSTAT,
        ),
        Column("read_s", "number", "s", "Reading files"),
        Column("decode_s", "number", "s", "Decoding"),
        Column("augment_s", "number", "s", "Transforms"),
        Column("user_s", "number", "s", "Inside `feedline.stage(...)`"),
        Column("dataset_s", "number", "s", "The rest of `__getitem__`"),
        Column("read_bytes", "number", "B", "Read by the operations in read_s"),
        Column("decoded_pixels", "number", "pixels", "Decoded; 0: no decoder was seen"),
        Column(
            "output_pixels", "number", "pixels", "Of the last picture before the tensor; 0: unknown"
        ),
    ),
)


def samples(ranks: Mapping[int, RankMetrics]) -> "pd.DataFrame":
    """Make the frame of samples, in order of rank, process and time."""
    parts = [
        _samples_of_process(rank, process, first_use)
        for rank in ranks.values()
        for process in [rank.main, *rank.workers]
        for first_use in (False, True)
        if len(process.of(Stage.SAMPLE))
    ]
    frame = SAMPLES.frame(parts)
    return frame.sort_values(["rank", "process", "start_s"], kind="stable", ignore_index=True)


def _samples_of_process(rank: RankMetrics, process: Process, first_use: bool) -> Rows:
    rows = process.of(Stage.SAMPLE)
    details = SampledDetails.of(process, frozenset(np.unique(rows["source"]).tolist()), first_use)
    rows = rows[(rows["flags"] & Flag.FIRST != 0) == first_use]
    count = len(rows)
    stages = {
        name: np.zeros(count) + details.sum(name, "wall") for name in STAGE_OF_DETAIL.values()
    }
    stages["dataset"] = details.whole["wall"] - sum(stages.values())
    return {
        **_MomentColumns.of(rank.rank).columns(rows["start"]),
        **_made_by(process, count),
        "loader": rows["source"],
        "epoch": rows["number"] >> 32,
        "batch": rows["number"] & 0xFFFFFFFF,
        "samples": rows["nbytes"],
        "in_mean": np.isin(rows["source"], list(rank.makers.loaders))
        & (first_use == _only_first_use(rank)),
        "stands_for": details.weight,
        **_clocks(rows),
        **{f"{name}_s": values / 1e9 for name, values in stages.items()},
        "read_bytes": details.nbytes.get("read", np.zeros(count)),
        "decoded_pixels": details.decoded,
        "output_pixels": details.output,
    }


def _only_first_use(rank: RankMetrics) -> bool:
    """Tell whether all samples of the training's loaders are of first use: then those count."""
    rows = [process.of(Stage.SAMPLE) for process in rank.makers.processes]
    return all(
        (row["flags"][np.isin(row["source"], list(rank.makers.loaders))] & Flag.FIRST).all()
        for row in rows
    )


def _made_by(process: Process, count: int) -> Rows:
    if not process.is_worker:
        return {"process": ["main"] * count, "worker": np.full(count, -1)}
    loader, worker = int(str(process.header["loader"])), int(str(process.header["worker"]))
    return {"process": [f"loader{loader}-worker{worker}"] * count, "worker": np.full(count, worker)}


def _clocks(rows: Records) -> dict[str, FloatArray]:
    """Return wall, CPU, without a CPU, and blocked; NaN where it was not measured."""
    wall = rows["wall"] / 1e9
    cpu, runqueue = (
        np.where(rows[name] >= 0, rows[name] / 1e9, np.nan) for name in ("cpu", "runqueue")
    )
    return {
        "wall_s": wall,
        "cpu_s": cpu,
        "runqueue_s": runqueue,
        "blocked_s": np.maximum(wall - cpu - runqueue, 0.0),
    }


GAUGES = FrameTable(
    "gauges",
    "One row per sample of a gauge of the machine, about one per second, in order of rank and "
    "time. "
    '`run.gauges.pivot_table(index="start_s", columns="gauge", values="value")` has a column per '
    "gauge.",
    (
        _RANK,
        _TIME,
        _START,
        Column("gauge", "text", "", "What was sampled: cpu/used, memory/used, gpu0/sm, ..."),
        Column("unit", "text", "", "Of the value"),
        Column(
            "value", "number", "as `unit`", "The value. A rate is the mean since the sample before"
        ),
    ),
)


def gauges(ranks: Mapping[int, RankMetrics]) -> "pd.DataFrame":
    """Make the frame of gauges.

    Ranks whose file is missing or damaged have no rows: the report's notes name them.
    """
    parts = [part for rank in ranks.values() if (part := _gauges_of_rank(rank.rank)) is not None]
    return GAUGES.frame(parts)


def _gauges_of_rank(rank: Rank) -> Rows | None:
    path = rank.folder / FILE
    if not os.path.lexists(path):
        return None
    try:
        sampled = read_gauges(path)
    except (FeedlineError, OSError, ValueError):
        return None
    if rank.slice is not None:
        sampled = sampled.between(rank.slice.begin, rank.slice.end)
    names = [sampled.names[number] for number in sampled.gauge.tolist()]
    return {
        **_MomentColumns.of(rank).columns(sampled.time),
        "gauge": [name for name, _ in names],
        "unit": [unit for _, unit in names],
        "value": sampled.value.astype(np.float64),
    }


STEPS = FrameTable(
    "steps",
    "One row per step that was recorded, in order. The columns `<stage>_s` sum to `wall_s`; "
    "`run.stages` lists them.",
    (
        _RANK,
        Column(
            "step",
            "integer",
            "",
            "Number of the step from 0. Steps that were only counted have a number and no row",
        ),
        _TIME,
        _START,
        Column("wall_s", "number", "s", "How long it took, without evaluation in it"),
        Column("batches", "integer", "", "Batches that the loader handed over in it"),
        Column(
            "samples",
            "integer",
            "",
            "Samples in them; 0 if their number is unknown, or if no batch was handed over",
        ),
        Column(
            "in_mean",
            "bool",
            "",
            "true: it counts in the report's means; the first steps, which warm up, do not",
        ),
        Column(
            "stands_for",
            "number",
            "steps",
            "How many steps of the run this one stands for: 1, or more where most steps were only "
            "counted (short steps, long runs). "
            "Use it as the weight of a mean; over the rows of one rank, it sums to the steps of "
            "that rank "
            "(`run.report.throughput.steps` of the rank shown). Where steps were only counted, "
            "`wall_s` of the "
            "others includes what recording them cost (`run.report.step.sampled.recording_s`), "
            "which the report's means leave out",
        ),
        Column(
            "<stage>_s",
            "number",
            "s",
            "Time in this stage: wait_s, forward_s, ...; mixup_s for your "
            '`feedline.stage("mixup")`',
        ),
    ),
)


def steps(ranks: Mapping[int, RankMetrics]) -> "tuple[pd.DataFrame, list[str]]":
    """Make the frame of steps; return it and its columns of stages in the order of a step."""
    stepped = [(rank, rank.steps) for rank in ranks.values() if rank.steps is not None]
    names = dict.fromkeys(name for rank, _ in stepped for name in rank.stages)
    ordered = [
        *(name for name in STEP_STAGES[:-1] if name in names),
        *(name for name in names if name not in STEP_STAGES),
        "other",
    ]
    columns = {name: _column_of(name) for name in ordered if name in names}
    parts = [_steps_of_rank(rank, found, columns) for rank, found in stepped]
    return STEPS.frame(parts, list(columns.values())), list(columns.values())


def _column_of(stage: str) -> str:
    """Name the column of a stage: ``wait_s`` for ``wait``.

    A user's stage may be called ``wall`` or ``start``.
    """
    taken = {column.name for column in STEPS.fixed}
    return f"{stage}_stage_s" if f"{stage}_s" in taken else f"{stage}_s"


def _stands_for(rank: RankMetrics, steps_found: Steps) -> FloatArray:
    """Return float64 [n]: how many steps of the run each recorded one stands for."""
    kept = throughput(rank).steps - rank.counted.number
    each = np.full(len(steps_found.wall), kept / max(len(steps_found.wall), 1))
    if rank.estimate is not None:
        each[rank.estimate.alike] += rank.counted.number / rank.estimate.alike.sum()
    return each


def _steps_of_rank(rank: RankMetrics, steps_found: Steps, columns: Mapping[str, str]) -> Rows:
    return {
        **_MomentColumns.of(rank.rank).columns(steps_found.start),
        "step": rank.counted.numbers(steps_found.start),
        "wall_s": steps_found.wall / 1e9,
        "batches": steps_found.batches,
        "samples": steps_found.samples,
        "in_mean": np.arange(len(steps_found.wall)) >= rank.first,
        "stands_for": _stands_for(rank, steps_found),
        **{columns[name]: values / 1e9 for name, values in rank.stages.items()},
    }


COLLECTIVES = FrameTable(
    "collectives",
    "One row per collective (or send, or receive) and rank, in order of rank and start. Rows of "
    "one collective share their number in "
    "`collective`. Empty where none was recorded.",
    (
        _RANK,
        Column(
            "collective",
            "integer",
            "",
            "Number of the collective, the same on all ranks",
            "it could not be matched with other ranks'",
        ),
        Column(
            "step",
            "integer",
            "",
            "Number of the step that it began in, as in `steps`",
            "it began outside all steps",
        ),
        _TIME,
        _START,
        Column("operation", "text", "", "all_reduce, reduce_scatter, all_gather, broadcast, ..."),
        Column(
            "bytes",
            "integer",
            "B",
            "The full message; of all_gather and reduce_scatter the larger side",
        ),
        Column("dtype", "text", "", "Of its elements; unknown where it was not recorded"),
        Column("group", "text", "", "Name of its process group"),
        Column("group_size", "integer", "ranks", "Ranks in that group; 0: unknown"),
        Column("backend", "text", "", "gloo, nccl, ..."),
        Column("phase", "text", "", f"What the rank was doing when it began: {', '.join(PHASES)}"),
        Column(
            "wall_s", "number", "s", "From the call until it was complete on this rank", _UNENDED
        ),
        Column(
            "wait_s",
            "number",
            "s",
            "Of that: until the last rank of the group had begun it, too",
            f"{_UNENDED}; or {_NOT_COMPARABLE}",
        ),
        Column(
            "queue_s",
            "number",
            "s",
            "Of that: all ranks had begun it, and it was queued behind others",
            f"{_UNENDED}; or {_NOT_COMPARABLE}",
        ),
        Column(
            "transfer_s",
            "number",
            "s",
            "Of that: its bytes moved. Collectives that move bytes at the same time share it",
            _UNENDED,
        ),
    ),
)


def collectives(ranks: Mapping[int, RankMetrics]) -> "pd.DataFrame":
    """Make the frame of collectives; of ranks that another run recorded, waiting is missing."""
    of_ranks = [one for rank in ranks.values() if (one := collectives_of(rank.rank)) is not None]
    return COLLECTIVES.frame(_parts(ranks, of_ranks) if of_ranks else [])


def _parts(ranks: Mapping[int, RankMetrics], of_ranks: Sequence[Collectives]) -> list[Rows]:
    together = combine(of_ranks)
    matched = together.matched
    rows = dict(zip(matched.ranks, matched.rows, strict=True))
    parts: list[Rows] = []
    for own in of_ranks:
        number = rows.get(own.rank, np.full(len(own.table), -1))
        whole = np.append(matched.complete, False)[number]  # number -1: the last
        spent = _spent(own, together.partitions[own.rank], together.arrivals[own.rank], whole)
        parts.append({**_of(ranks[own.rank], own), "collective": number, **spent})
    return parts


def _of(rank: RankMetrics, own: Collectives) -> Rows:
    table, groups = own.table, [own.groups[number] for number in own.table["group"].tolist()]
    return {
        **_MomentColumns.of(rank.rank).columns(table["start"].astype(np.int64)),
        "step": _steps(rank, own.step_at(table["start"].astype(np.int64))),
        "operation": [operation(own.names[number]) for number in table["name"].tolist()],
        "bytes": table["nbytes"],
        "dtype": [own.dtypes[number] for number in table["dtype"].tolist()],
        "group": [group.name for group in groups],
        "group_size": np.array([len(group.ranks) for group in groups], np.int64),
        "backend": [group.backend for group in groups],
        "phase": [PHASES[number] for number in table["phase"].tolist()],
    }


def _steps(rank: RankMetrics, index: IntArray) -> IntArray:
    """Return the steps' own numbers, -1: in none."""
    if rank.steps is None or not len(rank.steps.wall):
        return np.full(len(index), -1)
    return np.where(index >= 0, rank.counted.numbers(rank.steps.start)[index], -1)


def _spent(own: Collectives, cut: Partition, others: RankArrivals, whole: BoolArray) -> Rows:
    start, end = own.table["start"].astype(np.int64), own.table["end"].astype(np.int64)
    ended = end >= start
    known = ended & whole & cut.met
    return {
        "wall_s": np.where(ended, (end - start) / 1e9, np.nan),
        "wait_s": np.where(known, (others.last - start) / 1e9, np.nan),
        "queue_s": np.where(known, (others.free - others.last) / 1e9, np.nan),
        "transfer_s": cut.moving / 1e9,
    }
