"""What one run measured: quantities with how well they are known, and what the machine does to each."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from feedline.analysis.explain.model import Report
from feedline.analysis.measure.costs import SampledDetails
from feedline.analysis.measure.gather import RankMetrics
from feedline.analysis.measure.mean_step import counted_in, half_width, means_of, relative, walls_of
from feedline.analysis.measure.model import StepSummary
from feedline.analysis.measure.noise import FEWEST, FloatArray, error_of
from feedline.analysis.measure.waits import classify, sent_times
from feedline.profiler.events import Stage

NONE, CPU, THREAD = "none", "cpu", "thread"
#: Stages that wait for something other than a CPU, whose length says nothing of the CPUs.
_NOT_OF_CPU = frozenset(("wait", "epoch_start", "copy", "checkpoint"))
TIMED = {"forward": Stage.FORWARD, "backward": Stage.BACKWARD}  # in which the main thread's CPU time is measured
_CPU_BOUND = 0.8  # CPU time over the time not waiting for a CPU, from which on a stage is made of CPU time
_TAIL = 10  # values beyond a quantile, below which a bootstrap says nothing of it
_RARE = 0.01  # of a sample's wall time: less blocked time is not looked at


@dataclass(frozen=True)
class Measure:
    """One quantity of one run.

    Attributes:
        id, group, name, unit, clock: as in ``Quantity``.
        value: as the report has it.
        error: of ``value``, relative, from how the run's own values scatter; NaN: too few values.
        drift: relative standard deviation of what the machine did to it during the run; NaN: too few values.
        kind: what slows it down: ``cpu``, slower CPUs; ``thread``, also waiting for a CPU; ``none``.
    """

    id: str
    group: str
    name: str
    unit: str
    clock: str
    value: float
    error: float
    drift: float
    kind: str

    def absent(self) -> "Measure":
        """The same quantity of a run in which it does not occur."""
        return replace(self, value=0.0, error=0.0, drift=0.0)

    def divided(self, by: float) -> "Measure":
        """Per sample instead of per step."""
        return replace(self, value=self.value / by)


def measure(id: str, unit: str, value: float, series: FloatArray, *, kind: str = NONE, clock: str = "wall") -> Measure:
    """A mean over a series of values.

    Args:
        series: float64 [n], in order of time, in any unit.
    """
    group, _, name = id.partition("/")
    return Measure(id, group, name, unit, clock, value, *relative(series), kind)


def of_steps(rank: RankMetrics, report: Report) -> Iterator[Measure]:
    """The step, its stages, and its waits."""
    steps, step = rank.steps, report.step
    if steps is None or step is None:
        return
    chosen = counted_in(rank)
    walls = walls_of(rank)
    yield measure("step/mean", "s", step.mean_s, means_of(rank))
    yield from _quantiles(step, walls)
    used = next((gauge for gauge in report.gauges if gauge.name == "cpu/processes"), None)
    if step.cpu_s and used is not None:
        yield measure("step/cpu", "s", step.cpu_s, np.array(used.values), kind=CPU, clock="cpu")
    for name, mean_s in step.stages.items():
        if name in rank.stages:
            yield from _stage(rank, name, mean_s, chosen)
    kinds = classify(steps, rank.ready, sent_times(rank.workers), rank.makers.alone)
    for name, mean_s in step.waits.items():
        if mean_s > 0:
            yield measure(f"wait/{name}", "s", mean_s, kinds[name][chosen].astype(float))


def _quantiles(step: StepSummary, walls: FloatArray) -> Iterator[Measure]:
    """Median and 95th percentile of the step. With few steps the percentile rests on a handful of them, so it gets no interval."""
    for name, value, at in (("median", step.median_s, 0.5), ("p95", step.p95_s, 0.95)):
        error = error_of(lambda drawn, at=at: np.quantile(drawn, at, axis=-1), walls)  # type: ignore[misc]
        middle = float(np.quantile(walls, at))
        known = middle > 0 and len(walls) * min(at, 1 - at) >= _TAIL
        yield replace(measure(f"step/{name}", "s", value, walls), error=error / middle if known else math.nan)


def _stage(rank: RankMetrics, name: str, mean_s: float, chosen: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> Iterator[Measure]:
    """A stage of the step, and the CPU time of the main thread in it, where it is made of that."""
    series = rank.stages[name][chosen]
    yield measure(f"stage/{name}", "s", mean_s, series, kind=NONE if name in _NOT_OF_CPU else THREAD)
    if name in TIMED and (cpu := _main_thread(rank, TIMED[name], "cpu")) is not None:
        queued = _main_thread(rank, TIMED[name], "runqueue")
        own = float(series.sum() - (queued[chosen].sum() if queued is not None else 0.0))
        if own > 0 and cpu[chosen].sum() >= _CPU_BOUND * own:
            yield measure(f"cpu/{name}", "s", float(cpu[chosen].mean()) / 1e9, cpu[chosen], kind=CPU, clock="cpu")


def _main_thread(rank: RankMetrics, stage: Stage, clock: str) -> FloatArray | None:
    """float64 [steps], ns of a clock of the main thread in a stage's records; None where it was not measured."""
    assert rank.steps is not None
    records = rank.main.of(stage)
    records = records[(records[clock] >= 0) & (records["thread"] == 0)]
    if not len(records):
        return None
    steps = rank.steps
    at = np.searchsorted(steps.start, records["start"], "right") - 1
    inside = (at >= 0) & (records["start"] < np.append(steps.boundaries.end, 0)[at])
    return np.bincount(at[inside], records[clock][inside], len(steps.start)).astype(float)


def waiting_factor(rank: RankMetrics) -> float | None:
    """Time over time with a CPU of the main thread in forward and backward; None where the kernel does not tell."""
    if rank.steps is None:
        return None
    chosen, wall, queued = counted_in(rank), 0.0, 0.0
    for stage in TIMED.values():
        walls, waited = _main_thread(rank, stage, "wall"), _main_thread(rank, stage, "runqueue")
        if walls is not None and waited is not None:
            wall, queued = wall + float(walls[chosen].sum()), queued + float(waited[chosen].sum())
    return wall / (wall - queued) if wall > queued else None


def of_samples(rank: RankMetrics, report: Report) -> Iterator[Measure]:
    """CPU time and blocked time of making a sample, and what a sample is made of."""
    workers = report.workers
    if workers is None or "total" not in workers.per_sample:
        return
    totals = {clock: _batches(rank, clock) for clock in ("cpu", "blocked")}
    whole_s = workers.per_sample["total"].wall_s
    for name, cost in workers.per_sample.items():
        if cost.cpu_s:
            yield _sample(rank, f"sample/{name}", "cpu", cost.cpu_s, totals["cpu"])
        if cost.blocked_s and cost.blocked_s > _RARE * whole_s:
            yield _sample(rank, f"blocked/{name}", "blocked", cost.blocked_s, totals["blocked"])
    for name, value, pixels in (
        ("decoded_pixels", workers.decoded_pixels, rank.details.decoded),
        ("output_pixels", workers.output_pixels, rank.details.output),
    ):
        if value:
            yield measure(f"work/{name}", "1", value, pixels)


def _batches(rank: RankMetrics, clock: str) -> FloatArray:
    """float64 [n], ns per sample of each batch that was made, in order of time."""
    made = np.concatenate([process.batches for process in rank.makers.processes])
    made = made[np.isin(made["source"], list(rank.makers.loaders)) & (made["samples"] > 0)]
    steps = rank.steps
    if steps is not None and rank.first < len(steps.start) and (late := made["start"] >= steps.start[rank.first]).sum() >= FEWEST:
        made = made[late]  # the first ones import, allocate and fill caches
    made = made[np.argsort(made["start"], kind="stable")]
    if clock == "blocked":
        spent = np.maximum(made["wall"] - np.maximum(made["cpu"], 0) - np.maximum(made["runqueue"], 0), 0)
    else:
        spent = np.maximum(made["cpu"], 0)
    return np.asarray(spent / made["samples"])


def _sample(rank: RankMetrics, id: str, clock: str, value: float, batches: FloatArray) -> Measure:
    """A stage's part of a sample. Its error is that of the whole, of which every batch was timed, and that of its share of the whole, which
    only samples in detail tell."""
    made = measure(id, "s", value, batches, kind=CPU if clock == "cpu" else NONE, clock=clock)
    name = id.partition("/")[2]
    share = 0.0 if name in ("total", "collate", "transport") else _share_error(rank.details, name, clock, rank.samples)
    return replace(made, error=math.hypot(made.error, share))


def _share_error(details: SampledDetails, name: str, clock: str, samples: int) -> float:
    """Relative standard error of a stage's share of the samples' time; NaN where one sample was looked at."""

    def spent(of: dict[str, FloatArray]) -> FloatArray:
        return of["cpu"] if clock == "cpu" else np.maximum(of["wall"] - of["cpu"] - of["runqueue"], 0.0)

    parts = {stage: spent({at: details.sum(stage, at) for at in details.whole}) for stage in details.nbytes}
    whole = spent(details.whole)
    part = parts[name] if name in parts else whole - sum(parts.values())
    ratio, error = details.share(part, samples, whole)
    return error / ratio if error is not None and ratio > 0 else math.nan


def of_gauges(report: Report) -> Iterator[Measure]:
    """Gauges of the machine that vary."""
    for gauge in report.gauges:
        if gauge.maximum > gauge.minimum:
            yield measure(f"gauge/{gauge.name}", gauge.unit, gauge.mean, np.array(gauge.values))


def of_collectives(report: Report, shown: str) -> Iterator[Measure]:
    """What the shown rank's step goes to, where ranks were compared: no interval from one run."""
    parts = report.ranks[shown].comm if shown in report.ranks else None
    for name, value in (vars(parts) if parts is not None else {}).items():
        if value:
            yield measure(f"collective/{name.removesuffix('_s')}", "s", value, np.zeros(0))


def of_trace(report: Report) -> Iterator[Measure]:
    """The step and its stages of a trace, from the columns of its figure: one per step, of up to 600."""
    step = report.step
    if step is None:
        return
    series = step.series
    columns = {name: np.array(values) for name, values in series.stages.items()}
    walls = np.sum(list(columns.values()), axis=0) if columns else np.array(series.wall_s)
    yield measure("step/mean", "s", step.mean_s, walls)
    yield from _quantiles(step, walls)
    for name, value in step.stages.items():
        if name in columns:
            yield measure(f"stage/{name}", "s", value, columns[name])


def interval_of(one: Measure) -> tuple[float | None, float | None]:
    """95 % interval of a quantity of one run: what its values scatter by, and what the machine did to it meanwhile. None: not known."""
    half = half_width(one.error, one.drift)
    return (max(0.0, one.value * (1 - half)), one.value * (1 + half)) if math.isfinite(half) else (None, None)
