"""The frames of a run: steps, samples, collectives, gauges and findings.

Each has the names, units and meanings of its columns.
"""

import os
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from feedline.analysis.explain.model import Report
from feedline.analysis.intervals import BoolArray, IntArray
from feedline.analysis.ledger.finding import Finding
from feedline.analysis.measure.boundaries import Records
from feedline.analysis.measure.costs import PARTS, SampledDetails
from feedline.analysis.measure.gather import RankMetrics, throughput
from feedline.analysis.measure.rested import FloatArray
from feedline.analysis.measure.stages import STEP_STAGES
from feedline.analysis.measure.steps import Steps
from feedline.analysis.measure.user_code import UserFunction
from feedline.analysis.ranks.aligned_clocks import RankArrivals
from feedline.analysis.ranks.cross_rank import combine
from feedline.analysis.ranks.partition import Partition
from feedline.analysis.ranks.read_collectives import collectives_of
from feedline.analysis.traces.collectives import PHASES, Collectives, operation
from feedline.profiler.errors import FeedlineError
from feedline.profiler.events import Flag, Stage
from feedline.profiler.samplers.gauge_file import read_gauges
from feedline.profiler.store.layout import GAUGES as FILE
from feedline.profiler.store.run_folder import Rank
from feedline.profiler.store.segment_reader import Process

if TYPE_CHECKING:  # pandas takes a second of CPU: it is imported when a frame is asked for
    import pandas as pd


#: Kind of a column -> its dtype. An integer that may be missing is "Int64"; "str" is what this
#: pandas has for text.
_DTYPE_OF_KIND = {
    "integer": "int64",
    "number": "float64",
    "bool": "bool",
    "time": "datetime64[ns, UTC]",
    "text": "str",
}
_NAT = int(np.iinfo(np.int64).min)  # pandas' NaT
_DOC_WIDTH = 100  # of a docstring
_Rows = Mapping[str, Any]  # column -> array [n], of one rank or process
_NO_SCHEDSTAT = "the kernel does not report it (no schedstat)"
_NO_COST = "it names no cost in time"
_NOT_AN_INTERVAL = "cost_s is not a prediction"
_NOT_PREDICTED = "refused says why it is not predicted"
_NOT_BOUNDED = "that is not predicted"
_NO_RANK = "it does not name one rank"
_UNENDED = "its end was not seen"
_A_LINE = "the row is of one line"
_NO_STEP = "it is no part of the step, or the time of making batches is not known"
_NOT_COMPARABLE = (
    "not comparable with other ranks: their records are missing, or clocks cannot be compared"
)


@dataclass(frozen=True)
class _Column:
    """One column.

    Attributes:
        kind: of _DTYPE_OF_KIND.
        unit: "" for text, counts and the like.
        missing: when a value is missing (NaN, NaT or NA); empty: never.
    """

    name: str
    kind: str
    unit: str
    meaning: str
    missing: str = ""

    @property
    def dtype(self) -> str:
        """Of the frame's column."""
        return "Int64" if self.kind == "integer" and self.missing else _DTYPE_OF_KIND[self.kind]

    def text(self) -> str:
        """Say unit, meaning and when it is missing, in one line."""
        unit = f" [{self.unit}]" if self.unit else ""
        missing = f". Missing: {self.missing}" if self.missing else ""
        return f"{self.name}{unit}: {self.meaning}{missing}".removesuffix(".") + "."


@dataclass(frozen=True)
class Table:
    """A frame before it has rows.

    Attributes:
        name: of the property of a loaded run.
        rows: what a row is, in sentences.
        columns: in order. A name in angle brackets stands for any number of columns.
    """

    name: str
    rows: str
    columns: tuple[_Column, ...]

    @property
    def fixed(self) -> tuple[_Column, ...]:
        """The columns that every run has."""
        return tuple(column for column in self.columns if not column.name.startswith("<"))

    def frame(self, parts: Sequence[_Rows], more: Sequence[str] = ()) -> "pd.DataFrame":
        """Make the frame of all parts, one below the other.

        Args:
            parts: column -> array or list [n]. A negative integer stands for a missing one in a
                column that may miss values.
            more: columns of numbers after the fixed ones; 0 in a part that lacks one.
        """
        import pandas as pd

        rows = [len(part[self.columns[0].name]) for part in parts]
        columns = {
            column.name: _series(column, [part[column.name] for part in parts])
            for column in self.fixed
        }
        for name in more:
            columns[name] = pd.Series(
                _joined([part.get(name, np.zeros(n)) for part, n in zip(parts, rows, strict=True)]),
                dtype="float64",
            )
        return pd.DataFrame(columns)

    def docstring(self) -> str:
        """Write the docstring for the property of a loaded run."""
        lines = [
            textwrap.fill(
                column.text(), _DOC_WIDTH, subsequent_indent="    ", break_on_hyphens=False
            )
            for column in self.columns
        ]
        return "\n".join(
            [textwrap.fill(self.rows, _DOC_WIDTH, break_on_hyphens=False), "", *lines, ""]
        )

    def markdown(self) -> str:
        """Write a section of docs/api.md."""
        rows = ["| column | type | unit | meaning | missing when |", "|---|---|---|---|---|"]
        rows += [
            f"| `{column.name}` | {column.kind} | {column.unit} | {column.meaning} | "
            f"{column.missing} |"
            for column in self.columns
        ]
        return f"## {self.name}\n\n{self.rows}\n\n" + "\n".join(rows) + "\n"


def _series(column: _Column, values: Sequence[Any]) -> "pd.Series":
    import pandas as pd

    if column.kind == "text":
        return pd.Series([text for part in values for text in part], dtype="str")
    joined = _joined(values)
    if column.kind == "time":
        return pd.Series(pd.to_datetime(joined.astype(np.int64).view("datetime64[ns]"), utc=True))
    if column.dtype == "Int64":
        return pd.Series(joined.astype(np.int64), dtype="Int64").mask(joined < 0)
    return pd.Series(joined, dtype=column.dtype)


def _joined(values: Sequence[Any]) -> np.ndarray:
    return np.concatenate(values) if values else np.zeros(0)


_RANK = _Column(
    "rank",
    "integer",
    "",
    'Number of the rank. Write `frame["rank"]`: `frame.rank` is a method of pandas',
)
_TIME = _Column(
    "time",
    "time",
    "",
    "Date and time (UTC) of its beginning; for gauges, of the reading",
    "the run's manifest has no date",
)
_START = _Column(
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


SAMPLES = Table(
    "samples",
    "One row per sample that was measured in detail, of every loader: all of the first ones, "
    "later one in N. Its index in the dataset, or "
    "its file, is not recorded. `read_s` to `dataset_s` sum to `wall_s`.",
    (
        _RANK,
        _Column("process", "text", "", "What made it: main, or loader0-worker1"),
        _Column(
            "worker",
            "integer",
            "",
            "Number of the loader's worker",
            "the main process made it (num_workers=0)",
        ),
        _Column(
            "loader", "integer", "", "Number of the loader, as in the names of `run.report.loaders`"
        ),
        _Column("epoch", "integer", "", "Pass over the loader, from 0"),
        _Column(
            "batch",
            "integer",
            "",
            "Batch within the epoch, from 0, in the order in which the sampler drew them",
        ),
        _TIME,
        _START,
        _Column(
            "samples",
            "integer",
            "",
            "Samples in it: 1; a batch for `__getitems__`; 0 where the dataset raised or was at "
            "its end",
        ),
        _Column(
            "in_mean",
            "bool",
            "",
            "true: it counts in the report's costs, because it was made for a training loader and "
            "no import or cold start is in it",
        ),
        _Column(
            "stands_for",
            "number",
            "samples",
            "How many samples (or batches, for `__getitems__`) it stands for: the weight of its "
            "row",
        ),
        _Column("wall_s", "number", "s", "How long it took"),
        _Column(
            "cpu_s",
            "number",
            "s",
            "CPU time of the thread that made it",
            "not measured on this system",
        ),
        _Column("runqueue_s", "number", "s", "Runnable without a CPU", _NO_SCHEDSTAT),
        _Column(
            "blocked_s",
            "number",
            "s",
            "The rest: asleep, waiting for a disk, a lock or a network",
            _NO_SCHEDSTAT,
        ),
        _Column("read_s", "number", "s", "Reading files"),
        _Column("decode_s", "number", "s", "Decoding"),
        _Column("augment_s", "number", "s", "Transforms"),
        _Column("user_s", "number", "s", "Inside `feedline.stage(...)`"),
        _Column("dataset_s", "number", "s", "The rest of `__getitem__`"),
        _Column("read_bytes", "number", "B", "Read by the operations in read_s"),
        _Column("decoded_pixels", "number", "pixels", "Decoded; 0: no decoder was seen"),
        _Column(
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


def _samples_of_process(rank: RankMetrics, process: Process, first_use: bool) -> _Rows:
    rows = process.of(Stage.SAMPLE)
    details = SampledDetails.of(process, frozenset(np.unique(rows["source"]).tolist()), first_use)
    rows = rows[(rows["flags"] & Flag.FIRST != 0) == first_use]
    count = len(rows)
    stages = {name: np.zeros(count) + details.sum(name, "wall") for name in PARTS.values()}
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


def _made_by(process: Process, count: int) -> _Rows:
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


GAUGES = Table(
    "gauges",
    "One row per sample of a gauge of the machine, about one per second, in order of rank and "
    "time. "
    '`run.gauges.pivot_table(index="start_s", columns="gauge", values="value")` has a column per '
    "gauge.",
    (
        _RANK,
        _TIME,
        _START,
        _Column("gauge", "text", "", "What was sampled: cpu/used, memory/used, gpu0/sm, ..."),
        _Column("unit", "text", "", "Of the value"),
        _Column(
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


def _gauges_of_rank(rank: Rank) -> _Rows | None:
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


USER_CODE = Table(
    "user_code",
    "One row for each line of a function of the program that takes time, from sampled stacks of "
    "the rank that the report shows, and one with line 0 for the whole function. Empty if no "
    "stacks were sampled.",
    (
        _Column("kind", "text", "", "process: worker or main"),
        _Column("place", "text", "", "part of the pipeline: dataset, collate, forward, ..."),
        _Column("function", "text", "", "its name"),
        _Column("file", "text", "", "its file"),
        _Column("line", "integer", "", "the line; 0: the whole function"),
        _Column("share", "number", "1", "of making a sample; in other places, of the step"),
        _Column("low", "number", "1", "lower end of its 95 % interval", _A_LINE),
        _Column("high", "number", "1", "upper end", _A_LINE),
        _Column("seconds_per_step", "number", "s", "what it takes of one process", _NO_STEP),
        _Column("caller", "text", "", "function and line that call it; empty: a library does"),
        _Column("library", "text", "", "function of a library that it mostly calls there"),
    ),
)

FINDINGS = Table(
    "findings",
    "One row per finding of the report, most important first. `run.report.findings` has their "
    "evidence, too.",
    (
        _Column(
            "cause",
            "text",
            "",
            "Stable identifier of the rule that found it: decode_bound, too_few_workers, ...",
        ),
        _Column("severity", "text", "", "high, low or info"),
        _Column("says", "text", "", "One sentence with the figures"),
        _Column("cost_s", "number", "s", "What it costs per step", _NO_COST),
        _Column(
            "cost_kind",
            "text",
            "",
            "What cost_s says of the gain: predicted, estimated, at_least, bound or unknown",
        ),
        _Column(
            "cost_low_s",
            "number",
            "s",
            "Lower end of the interval of a prediction (95 %)",
            _NOT_AN_INTERVAL,
        ),
        _Column("cost_high_s", "number", "s", "Its upper end", _NOT_AN_INTERVAL),
        _Column("step_share", "number", "", "cost_s as a share of the mean step, 0 to 1", _NO_COST),
        _Column("fix", "text", "", "What to change"),
        _Column(
            "how_to_check",
            "text",
            "",
            "An experiment, and the outcome that would prove this finding wrong",
        ),
        _Column(
            "predicted",
            "number",
            "samples/s",
            "Throughput with its fix, as predicted",
            _NOT_PREDICTED,
        ),
        _Column(
            "predicted_low", "number", "samples/s", "Lower end of its 95 % interval", _NOT_PREDICTED
        ),
        _Column("predicted_high", "number", "samples/s", "Its upper end", _NOT_PREDICTED),
        _Column("place", "text", "", "file and line to change; empty: unknown, or several"),
        _Column(
            "at_most_per_s",
            "number",
            "samples/s",
            "upper end of the throughput predicted if what it names took no time",
            _NOT_BOUNDED,
        ),
        _Column("refused", "text", "", "Why its fix is not predicted; empty where it is"),
        _Column("rank", "integer", "", "The rank that the others wait for", _NO_RANK),
    ),
)


def findings(report: Report) -> "pd.DataFrame":
    """Make the frame of findings."""
    mean = report.step.mean_s if report.step is not None else 0.0
    costs = [finding.cost_s if finding.cost_s > 0 else None for finding in report.findings]
    return FINDINGS.frame(
        [
            {
                "cause": [finding.rule_id for finding in report.findings],
                "says": [finding.message for finding in report.findings],
                "fix": [finding.fix for finding in report.findings],
                "severity": [finding.severity.value for finding in report.findings],
                "cost_s": _numbers(costs),
                "cost_kind": [finding.cost_kind.value for finding in report.findings],
                "cost_low_s": _numbers([finding.cost_low_s for finding in report.findings]),
                "cost_high_s": _numbers([finding.cost_high_s for finding in report.findings]),
                "step_share": _numbers(
                    [None if cost is None or not mean else cost / mean for cost in costs]
                ),
                "predicted": _numbers(
                    [
                        finding.predicted.after if finding.predicted else None
                        for finding in report.findings
                    ]
                ),
                "predicted_low": _numbers(
                    [
                        finding.predicted.low if finding.predicted else None
                        for finding in report.findings
                    ]
                ),
                "predicted_high": _numbers(
                    [
                        finding.predicted.high if finding.predicted else None
                        for finding in report.findings
                    ]
                ),
                "place": [finding.place for finding in report.findings],
                "at_most_per_s": _numbers([one.at_most_per_s for one in report.findings]),
                "refused": [finding.refused for finding in report.findings],
                "how_to_check": [finding.how_to_check for finding in report.findings],
                "rank": np.array([_rank(finding) for finding in report.findings], np.int64),
            }
        ]
    )


def _rank(finding: Finding) -> int:
    return -1 if finding.blame is None or finding.blame.rank is None else finding.blame.rank


def _numbers(values: list[float | None]) -> np.ndarray:
    return np.array([np.nan if value is None else value for value in values], np.float64)


STEPS = Table(
    "steps",
    "One row per step that was recorded, in order. The columns `<stage>_s` sum to `wall_s`; "
    "`run.stages` lists them.",
    (
        _RANK,
        _Column(
            "step",
            "integer",
            "",
            "Number of the step from 0. Steps that were only counted have a number and no row",
        ),
        _TIME,
        _START,
        _Column("wall_s", "number", "s", "How long it took, without evaluation in it"),
        _Column("batches", "integer", "", "Batches that the loader handed over in it"),
        _Column(
            "samples",
            "integer",
            "",
            "Samples in them; 0 if their number is unknown, or if no batch was handed over",
        ),
        _Column(
            "in_mean",
            "bool",
            "",
            "true: it counts in the report's means; the first steps, which warm up, do not",
        ),
        _Column(
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
        _Column(
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


def _step_numbers(rank: RankMetrics, steps_found: Steps) -> IntArray:
    """Return the number of each recorded step: int64 [n].

    Steps that were only counted before it are included.
    """
    rests = rank.counted
    before = np.concatenate([[0], np.cumsum(rests.steps)])
    return np.asarray(
        np.arange(len(steps_found.wall))
        + before[np.searchsorted(rests.start, steps_found.start, "left")]
    )


def _stands_for(rank: RankMetrics, steps_found: Steps) -> FloatArray:
    """Return float64 [n]: how many steps of the run each recorded one stands for."""
    kept = throughput(rank).steps - rank.counted.number
    each = np.full(len(steps_found.wall), kept / max(len(steps_found.wall), 1))
    if rank.estimate is not None:
        each[rank.estimate.alike] += rank.counted.number / rank.estimate.alike.sum()
    return each


def _steps_of_rank(rank: RankMetrics, steps_found: Steps, columns: Mapping[str, str]) -> _Rows:
    return {
        **_MomentColumns.of(rank.rank).columns(steps_found.start),
        "step": _step_numbers(rank, steps_found),
        "wall_s": steps_found.wall / 1e9,
        "batches": steps_found.batches,
        "samples": steps_found.samples,
        "in_mean": np.arange(len(steps_found.wall)) >= rank.first,
        "stands_for": _stands_for(rank, steps_found),
        **{columns[name]: values / 1e9 for name, values in rank.stages.items()},
    }


COLLECTIVES = Table(
    "collectives",
    "One row per collective (or send, or receive) and rank, in order of rank and start. Rows of "
    "one collective share their number in "
    "`collective`. Empty where none was recorded.",
    (
        _RANK,
        _Column(
            "collective",
            "integer",
            "",
            "Number of the collective, the same on all ranks",
            "it could not be matched with other ranks'",
        ),
        _Column(
            "step",
            "integer",
            "",
            "Number of the step that it began in, as in `steps`",
            "it began outside all steps",
        ),
        _TIME,
        _START,
        _Column("operation", "text", "", "all_reduce, reduce_scatter, all_gather, broadcast, ..."),
        _Column(
            "bytes",
            "integer",
            "B",
            "The full message; of all_gather and reduce_scatter the larger side",
        ),
        _Column("dtype", "text", "", "Of its elements; unknown where it was not recorded"),
        _Column("group", "text", "", "Name of its process group"),
        _Column("group_size", "integer", "ranks", "Ranks in that group; 0: unknown"),
        _Column("backend", "text", "", "gloo, nccl, ..."),
        _Column("phase", "text", "", f"What the rank was doing when it began: {', '.join(PHASES)}"),
        _Column(
            "wall_s", "number", "s", "From the call until it was complete on this rank", _UNENDED
        ),
        _Column(
            "wait_s",
            "number",
            "s",
            "Of that: until the last rank of the group had begun it, too",
            f"{_UNENDED}; or {_NOT_COMPARABLE}",
        ),
        _Column(
            "queue_s",
            "number",
            "s",
            "Of that: all ranks had begun it, and it was queued behind others",
            f"{_UNENDED}; or {_NOT_COMPARABLE}",
        ),
        _Column(
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


def _parts(ranks: Mapping[int, RankMetrics], of_ranks: Sequence[Collectives]) -> list[_Rows]:
    together = combine(of_ranks)
    matched = together.matched
    rows = dict(zip(matched.ranks, matched.rows, strict=True))
    parts: list[_Rows] = []
    for own in of_ranks:
        number = rows.get(own.rank, np.full(len(own.table), -1))
        whole = np.append(matched.complete, False)[number]  # number -1: the last
        spent = _spent(own, together.partitions[own.rank], together.arrivals[own.rank], whole)
        parts.append({**_of(ranks[own.rank], own), "collective": number, **spent})
    return parts


def _of(rank: RankMetrics, own: Collectives) -> _Rows:
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
    return np.where(index >= 0, _step_numbers(rank, rank.steps)[index], -1)


def _spent(own: Collectives, cut: Partition, others: RankArrivals, whole: BoolArray) -> _Rows:
    start, end = own.table["start"].astype(np.int64), own.table["end"].astype(np.int64)
    ended = end >= start
    known = ended & whole & cut.met
    return {
        "wall_s": np.where(ended, (end - start) / 1e9, np.nan),
        "wait_s": np.where(known, (others.last - start) / 1e9, np.nan),
        "queue_s": np.where(known, (others.free - others.last) / 1e9, np.nan),
        "transfer_s": cut.moving / 1e9,
    }


#: In the order of docs/api.md.
ALL_FRAMES = (STEPS, SAMPLES, COLLECTIVES, GAUGES, USER_CODE, FINDINGS)


def user_code(report: Report) -> "pd.DataFrame":
    """Make the frame of the program's functions and lines."""
    rows = [
        row
        for one in (report.user_code.functions if report.user_code else [])
        for row in _lines_of(one)
    ]
    names = [column.name for column in USER_CODE.columns]
    columns: dict[str, Any] = {name: [row[name] for row in rows] for name in names}
    for column in USER_CODE.columns:
        if column.kind == "number":
            columns[column.name] = _numbers(columns[column.name])
        elif column.kind == "integer":
            columns[column.name] = np.array(columns[column.name], np.int64)
    return USER_CODE.frame([columns])


def _lines_of(one: UserFunction) -> Iterator[dict[str, Any]]:
    """Rows of a function: all of it, then its lines."""
    whole = {name: getattr(one, name) for name in ("kind", "place", "function", "file", "caller")}
    ends = {"low": one.low, "high": one.high}
    per_step = one.seconds_per_step
    library = {"library": one.library}
    yield {**whole, "line": 0, "share": one.share, **ends, "seconds_per_step": per_step, **library}
    for line in one.lines:
        part = None if per_step is None or not one.share else per_step * line.share / one.share
        yield {
            **whole,
            "line": line.line,
            "share": line.share,
            "low": None,
            "high": None,
            "seconds_per_step": part,
            "library": line.library,
        }
