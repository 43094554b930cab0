"""The result of a comparison of loaders: rows, their order, and JSON.

One loader is called faster than another only where their intervals, which are shown beside them,
lie apart, and where it was more than _MIN_SPEEDUP faster in enough rounds for a sign test. Loaders
whose order is due to chance share a place.
"""

import datetime
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from feedline.pipelines.translate.difference import LibraryDifference
from feedline.profiler.ceilings import Ceiling, Ceilings

_COMPARISON_SCHEMA = 1
# a loader that is faster by less is not called faster: two had ratios of 0.92 to 1.09 in four
# comparisons
_MIN_SPEEDUP = 0.10
# one order of two equally fast loaders that comes this seldom is not taken for luck
_MAX_CHANCE = 0.05
MIN_ROUNDS = 5  # rounds below which no order is that seldom (2 ** -MIN_ROUNDS <= _MAX_CHANCE)
MIN_INTERVAL_ROUNDS = 6  # rounds below which the interval of a median is the range of all rounds
# of the time: where other programs compute on the GPU for longer, the loaders' time on it is unknown
MAX_GPU_OTHERS = 0.05


@dataclass(frozen=True)
class EpochPart:
    """A part of an epoch, run by one loader in one round.

    Attributes:
        samples, wall_s: between two batches that came out, after the first ones that were ready in
            advance.
        cpu_s: CPU seconds in that time of this process and of all below it.
        main_s: of them, those of the main thread: what it costs to receive a batch.
        gpu_s: seconds in that time in which any kernel ran on the GPU (NVML's utilization); None:
            no GPU, or other programs use it.
        first_batch_s: from making the loader until its first batch.
    """

    samples: int
    wall_s: float
    cpu_s: float
    main_s: float
    first_batch_s: float
    gpu_s: float | None = None


@dataclass(frozen=True)
class StageCosts:
    """CPU seconds per sample of one loader's own functions, called in one process on one core.

    Attributes:
        transport: collating a batch, bringing it to the main process (both sides together), and
            making float32 of uint8 there.
    """

    read: float
    decode: float
    augment: float
    transport: float


@dataclass(frozen=True)
class PixelDifference:
    """Differences between a loader's images and those of pillow-v1, in gray levels (0 to 255).

    Random parameters are fixed.

    Attributes:
        largest_mean: of the one image that differs most.
        outside: why they are not taken for equal; empty: they are.
    """

    images: int
    mean: float
    largest_mean: float
    max: float
    outside: str = ""


@dataclass(frozen=True)
class Epoch:
    """A whole epoch of a loader.

    Attributes:
        wrong: which samples came twice or not at all; empty: each came exactly once.
    """

    samples: int
    wall_s: float
    wrong: str = ""


@dataclass(frozen=True)
class Compute:
    """A training step of the user's model on batches in memory.

    Attributes:
        step_s: wall seconds per sample: forward, loss, backward, optimizer.
        cpu_s: CPU seconds per sample of this process.
    """

    step_s: float
    cpu_s: float


@dataclass(frozen=True)
class TrainingRate:
    """The predicted rate of a training with a loader.

    Attributes:
        samples_per_s: the smallest of the limits.
        limit: ``loader``, ``compute`` or ``cores``.
        limits: each limit in samples/s, by name.
        low, high: of samples_per_s, from the intervals of the loader's medians.
    """

    samples_per_s: float
    limit: str
    limits: dict[str, float]
    low: float
    high: float


@dataclass
class LoaderRow:
    """All results of one loader.

    Attributes:
        why: why it could not be measured, or not to the end; empty: it was.
        stages_why: why its stages are not timed separately.
        uses_gpu: it runs here, and decodes or augments on the GPU.
        missing: operations of the user's transform that it leaves out.
        parts: one per round.
    """

    name: str
    about: str
    why: str = ""
    uses_gpu: bool = False
    missing: tuple[str, ...] = ()
    parts: list[EpochPart] = field(default_factory=list)
    stages: StageCosts | None = None
    stages_why: str = ""
    epoch: Epoch | None = None
    pixels: PixelDifference | None = None
    pixels_why: str = ""
    feeds: TrainingRate | None = None

    @property
    def measured(self) -> bool:
        """Whether it was measured to the end."""
        return not self.why and bool(self.parts)

    @property
    def is_upper_bound(self) -> bool:
        """Whether it repeats one batch in memory, which no training can use."""
        return self.name == "synthetic"

    @property
    def is_reference(self) -> bool:
        """Whether the images of the others are compared with its own."""
        return self.name == "pillow-v1"

    @property
    def rates(self) -> list[float]:
        """Samples/s of each round."""
        return [part.samples / part.wall_s for part in self.parts]

    @property
    def cpu_each(self) -> list[float]:
        """CPU seconds per sample of each round."""
        return [part.cpu_s / part.samples for part in self.parts]

    @property
    def main_each(self) -> list[float]:
        """CPU seconds per sample of the main thread, of each round."""
        return [part.main_s / part.samples for part in self.parts]

    @property
    def samples_per_s(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.rates)

    @property
    def cpu_s(self) -> float:
        """CPU seconds per sample."""
        return statistics.median(self.cpu_each)

    @property
    def main_s(self) -> float:
        """CPU seconds per sample of the main thread."""
        return statistics.median(self.main_each)

    @property
    def gpu_s(self) -> float | None:
        """GPU seconds per sample; None: not known."""
        known = [part.gpu_s / part.samples for part in self.parts if part.gpu_s is not None]
        return statistics.median(known) if known else None

    @property
    def cores(self) -> float:
        """How many cores it keeps busy."""
        return statistics.median(part.cpu_s / part.wall_s for part in self.parts)

    @property
    def first_batch_s(self) -> float:
        """The median of the rounds."""
        return statistics.median(part.first_batch_s for part in self.parts)

    @property
    def faultless(self) -> bool:
        """Whether it was measured and does all that the user's own transform does.

        It delivers every sample once, lacks nothing, and its images were compared and are equal.
        """
        return (
            self.measured
            and not self.missing
            and not (self.epoch and self.epoch.wrong)
            and (self.is_reference if self.pixels is None else not self.pixels.outside)
        )


@dataclass(frozen=True)
class Comparison:
    """A comparison of loaders.

    Attributes:
        rows: in the order in which they were asked for.
        photos: of how many files the dataset consists after those that are left out.
        left_out: kind of problem -> paths.
        cache: ``warm``: every file was read once before; ``partly cached``: so it was, but they did
            not stay in the page cache; ``cold``: it was emptied of them before every part.
        cached: share of the files' pages in the page cache after it was filled or emptied, 0 to 1,
            in a sample of the files; None: Linux does not tell.
        compute_why: why the model is not measured; empty: it is, or there is none.
        gpu_others: share of the time, 0 to 1, in which other programs computed on the GPU before
            the rounds; None: no GPU, or not known. Above MAX_GPU_OTHERS no loader has gpu_s.
        cores: that this process may use.
        choice: which loader to take, and why.
        takes: its name; empty: none is better than the present one.
        lines: of a program that trains with it; empty where ``takes`` is.
        operations: each operation of the transform in each library; ``operations_why``: why there
            are none.
    """

    rows: Sequence[LoaderRow]
    photos: int
    sample_bytes: float
    left_out: dict[str, list[str]]
    settings: dict[str, object]
    cache: str
    cores: float
    compute: Compute | None
    choice: str
    operations: list[LibraryDifference] = field(default_factory=list)
    operations_why: str = ""
    machine: dict[str, object] = field(default_factory=dict)
    takes: str = ""
    lines: list[str] = field(default_factory=list)
    cached: float | None = None
    compute_why: str = ""
    gpu_others: float | None = None

    @property
    def measured(self) -> list[LoaderRow]:
        """The rows that were measured."""
        return [row for row in self.rows if row.measured]


def rank_loaders(rows: Sequence[LoaderRow]) -> list[tuple[int, LoaderRow]]:
    """Return (place, row) pairs, the highest samples/s first.

    A row shares the place of those before it unless one of these was clearly faster
    (``faster_loaders``). An upper bound takes no place from the others.

    Args:
        rows: measured ones, with as many rounds each.
    """
    clearly = faster_loaders(rows)
    groups: list[list[LoaderRow]] = []
    for row in sorted(rows, key=lambda candidate: -candidate.samples_per_s):
        if groups and clearly[row.name].isdisjoint(tied.name for tied in groups[-1]):
            groups[-1].append(row)
        else:
            groups.append([row])
    ranked, place = [], 1
    for group in groups:
        ranked += [(place, row) for row in group]
        place += sum(not row.is_upper_bound for row in group)
    return ranked


def faster_loaders(rows: Sequence[LoaderRow]) -> dict[str, set[str]]:
    """Map each loader to the names of those that were faster.

    Their interval lies above its own, and they pass a sign test over the rounds. A machine that
    others use is slow in some rounds, so that a loader's rate in a round is taken relative to all
    loaders' in that round.
    """
    relative, intervals = _relative(rows), {row.name: median_interval(row.rates) for row in rows}

    def is_faster(name: str, other: str) -> bool:
        return lies_above(intervals[name], intervals[other]) and _passes_sign_test(
            relative[name], relative[other]
        )

    return {
        row.name: {better.name for better in rows if is_faster(better.name, row.name)}
        for row in rows
    }


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the median: of 9 values, the second to the eighth.

    From the ordered values (Conover, Practical Nonparametric Statistics, 3.2). Of fewer than 6, the
    lowest to the highest, which holds the median less often: of five in 94 %, of two in 50 %.
    """
    ordered, rounds, inner = sorted(values), len(values), 0
    while (
        2 * sum(math.comb(rounds, count) for count in range(inner + 2)) / 2**rounds <= _MAX_CHANCE
        and 2 * (inner + 1) < rounds
    ):
        inner += 1
    return ordered[inner], ordered[rounds - 1 - inner]


def lies_above(higher: tuple[float, float], lower: tuple[float, float]) -> bool:
    """Tell whether an interval lies above another."""
    return higher[0] > lower[1]


def _relative(rows: Sequence[LoaderRow]) -> dict[str, list[float]]:
    """Divide the rates of each round by their geometric mean; returns logarithms."""
    logs = {row.name: [math.log(rate) for rate in row.rates] for row in rows}
    means = [statistics.mean(column) for column in zip(*logs.values(), strict=True)]
    return {
        name: [log - mean for log, mean in zip(logs_of_row, means, strict=True)]
        for name, logs_of_row in logs.items()
    }


def _passes_sign_test(faster: Sequence[float], slower: Sequence[float]) -> bool:
    """Do a one-sided sign test over the rounds; of too few, see whether they lie apart.

    Conover, Practical Nonparametric Statistics, 3.4.
    """
    rounds, more = len(faster), math.log1p(_MIN_SPEEDUP)
    if rounds < MIN_ROUNDS:
        return min(faster) > max(slower) + more
    wins = sum(a > b + more for a, b in zip(faster, slower, strict=True))
    return (
        sum(math.comb(rounds, count) for count in range(wins, rounds + 1)) / 2**rounds
        <= _MAX_CHANCE
    )


def to_plain(comparison: Comparison) -> dict[str, Any]:
    """Return the whole comparison as plain data.

    schema_version  1; it grows when a name below changes its meaning or goes
    photos, sample_bytes, left_out (kind -> paths), settings, cores, machine
    cache           warm, partly cached, or cold
    cached          share of the files in the page cache, 0 to 1, as found in a sample of them; null: Linux does not tell
    choice          a few sentences
    takes, lines    the loader to take, and the lines of a program that trains with it; both empty: none is better than the present one
    compute         null, or step_s and cpu_s per sample
    compute_why     why the model is not measured; empty: it is, or there is none
    gpu_others      share of the time, 0 to 1, in which other programs computed on the GPU; null: no GPU, or not known. Above 0.05, every
                    gpu_s is null
    operations      a list, each operation of the transform in each library (backend) against torchvision on PIL images, random parameters
                    fixed: operation, backend, mean and max in gray levels (null: it cannot), says; or empty, and operations_why
    loaders         a list:
        place       1: the fastest; loaders whose order is luck share one; null: not measured, or an upper bound
        name, about, why (not measured; else empty), uses_gpu (to decode or augment), missing (operations it leaves out)
        low, high   of samples_per_s: 95 % interval of the median (of fewer than 6 rounds: the slowest and the fastest)
        samples_per_s, cpu_s, main_s, gpu_s, cores, first_batch_s: medians over the rounds, the seconds per sample but for first_batch_s
        parts       one per round: samples, wall_s, cpu_s, main_s, gpu_s, first_batch_s of that part
        stages      CPU seconds per sample: read, decode, augment, transport; or null, and stages_why
        epoch       samples, wall_s, wrong (empty: every sample came exactly once)
        pixels      images, mean, largest_mean, max in gray levels, outside (empty: equal within the bounds); or null, and pixels_why
        feeds       null, or samples_per_s, limit (loader, compute, cores), limits, low and high
    """
    data = {name: value for name, value in asdict(comparison).items() if name != "rows"}
    data["operations"] = [_finite(operation) for operation in data["operations"]]
    place_of = {
        row.name: place
        for place, row in rank_loaders(comparison.measured)
        if not row.is_upper_bound
    }
    return {
        "schema_version": _COMPARISON_SCHEMA,
        **data,
        "loaders": [_row(row, place_of.get(row.name)) for row in comparison.rows],
    }


def _finite(difference: dict[str, Any]) -> dict[str, Any]:
    """Replace infinity, which stands for images of another size and which JSON lacks."""
    message = difference.pop("message")
    if difference["mean"] is None or math.isfinite(difference["mean"]):
        return {**difference, "says": message}
    return {
        **difference,
        "mean": None,
        "max": None,
        "says": "; ".join(filter(None, ("another size", message))),
    }


def _row(row: LoaderRow, place: int | None) -> dict[str, Any]:
    names = ("samples_per_s", "cpu_s", "main_s", "gpu_s", "cores", "first_batch_s")
    low, high = median_interval(row.rates) if row.measured else (None, None)
    return {
        "place": place,
        **asdict(row),
        "low": low,
        "high": high,
        **{name: getattr(row, name) if row.measured else None for name in names},
    }


def to_pytest_benchmark(comparison: Comparison) -> dict[str, Any]:
    """Return a benchmark per loader, in seconds per sample.

    The format is what ``pytest-benchmark compare`` reads.
    """
    return {
        "version": "5.1.0",
        "datetime": datetime.datetime.now(datetime.timezone.utc).isoformat(),
        "machine_info": comparison.machine,
        "commit_info": {},
        "benchmarks": [_benchmark(row, comparison.settings) for row in comparison.measured],
    }


def _benchmark(row: LoaderRow, settings: dict[str, object]) -> dict[str, Any]:
    return {
        "group": "feedline compare",
        "name": row.name,
        "fullname": f"feedline compare::{row.name}",
        "params": None,
        "param": None,
        "extra_info": {
            "cpu_s_per_sample": row.cpu_s,
            "samples_per_s": row.samples_per_s,
            **settings,
        },
        "options": {
            "disable_gc": False,
            "timer": "perf_counter",
            "min_rounds": len(row.parts),
            "warmup": True,
        },
        "stats": _stats([1 / rate for rate in row.rates]),
    }


def _stats(seconds: list[float]) -> dict[str, Any]:
    """Return what pytest-benchmark calls stats, over the rounds."""
    ordered = sorted(seconds)
    mean = statistics.fmean(ordered)
    deviation = statistics.stdev(ordered) if len(ordered) > 1 else 0.0
    q1, _, q3 = (
        statistics.quantiles(ordered, n=4, method="inclusive") if len(ordered) > 1 else ordered * 3
    )
    low, high = q1 - 1.5 * (q3 - q1), q3 + 1.5 * (q3 - q1)
    far = sum(abs(value - mean) > deviation for value in ordered)
    outside = sum(not low <= value <= high for value in ordered)
    return {
        "min": ordered[0],
        "max": ordered[-1],
        "mean": mean,
        "stddev": deviation,
        "rounds": len(ordered),
        "median": statistics.median(ordered),
        "iqr": q3 - q1,
        "q1": q1,
        "q3": q3,
        "iqr_outliers": outside,
        "stddev_outliers": far,
        "outliers": f"{far};{outside}",
        "ld15iqr": next(value for value in ordered if value >= low),
        "hd15iqr": next(value for value in reversed(ordered) if value <= high),
        "ops": 1 / mean,
        "total": sum(ordered),
        "data": seconds,
        "iterations": 1,
    }


def loader_ceilings(comparison: Comparison) -> Ceilings:
    """Return a ceiling per loader, for the roofline."""
    settings = {**comparison.settings, "cache": comparison.cache}
    rows = []
    for row in comparison.rows:
        name, source = f"loader/{row.name}", f"feedline compare: median of {len(row.parts)} rounds"
        if row.measured:
            low, high = min(row.rates), max(row.rates)
            rows.append(
                Ceiling(
                    name,
                    "loader",
                    row.samples_per_s,
                    low,
                    high,
                    cpu_s=row.cpu_s,
                    source=source,
                    settings=settings,
                )
            )
        else:
            rows.append(Ceiling(name, "loader", None, settings=settings, why=row.why))
    return Ceilings(
        rows, comparison.machine, sample_bytes=comparison.sample_bytes, cores=comparison.cores
    )
