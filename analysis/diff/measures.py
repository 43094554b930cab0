"""What one run measured, quantity by quantity, and how well each is known."""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from feedline.analysis.diff import side
from feedline.analysis.diff.side import CPU_TIMED_STAGES, ComparedRun, Influence, Measure
from feedline.analysis.explain import reports_of_run
from feedline.analysis.explain.measured import gather_ranks
from feedline.analysis.explain.model import Report
from feedline.analysis.intervals import FloatArray
from feedline.analysis.measure.costs import SampledDetails
from feedline.analysis.measure.counted_steps import CLEARLY
from feedline.analysis.measure.noise import (
    MIN_VALUES,
    counted_in,
    error_of,
    means_of,
    relative,
    walls_of,
)
from feedline.analysis.measure.rank_metrics import RankMetrics
from feedline.analysis.measure.stages import UNATTRIBUTED
from feedline.analysis.measure.step_model import StepSummary
from feedline.analysis.measure.waits import classify
from feedline.profiler.events import Stage
from feedline.profiler.store.run_folder import Run, rank_folders
from feedline.profiler.store.trainings import open_run, require_one_training

#: Stages that wait for something other than a CPU, whose length says nothing of the CPUs.
_NOT_OF_CPU = frozenset(("wait", "epoch_start", "copy", "checkpoint"))
# CPU time over the time not waiting for a CPU, from which on a stage is made of CPU time
_CPU_BOUND = 0.8
_MIN_TAIL_VALUES = 10  # values beyond a quantile, below which a bootstrap says nothing of it
_RARE = 0.01  # of a sample's wall time: less blocked time is not looked at


def _measure(
    id: str,
    unit: str,
    value: float,
    series: FloatArray,
    *,
    kind: str = Influence.NONE,
    clock: str = "wall",
) -> Measure:
    """Make a measure: a mean over a series of values.

    Args:
        id: of the quantity.
        unit: of the mean.
        value: the mean.
        series: float64 [n], in order of time, in any unit.
        kind: what the machine does to it.
        clock: wall or CPU time.
    """
    group, _, name = id.partition("/")
    return Measure(id, group, name, unit, clock, value, *relative(series), kind)


def _of_steps(rank: RankMetrics, report: Report) -> Iterator[Measure]:
    """Yield the step, its stages, and its waits."""
    steps, step = rank.steps, report.step
    if steps is None or step is None:
        return
    chosen = counted_in(rank)
    walls = walls_of(rank)
    yield _measure("step/mean", "s", step.mean_s, means_of(rank))
    yield from _quantiles(step, walls)
    used = next((gauge for gauge in report.gauges if gauge.name == "cpu/processes"), None)
    if step.cpu_s and used is not None:
        yield _measure(
            "step/cpu", "s", step.cpu_s, np.array(used.values), kind=Influence.CPU, clock="cpu"
        )
    unsure = _unsure_of_samples(rank)
    for name, mean_s in step.stages.items():
        if name in rank.stages:
            more = unsure.get(name, 0.0) * step.mean_s / mean_s if mean_s > 0 else 0.0
            for measure in _stage(rank, name, mean_s, chosen):
                yield replace(measure, error=math.hypot(measure.error, more))
        elif name == UNATTRIBUTED:  # no recorded step has it, so how it varies is unknown
            yield _measure(f"stage/{name}", "s", mean_s, np.zeros(0))
    kinds = classify(steps, rank.ready, rank.workers, rank.makers.alone)
    for name, mean_s in step.waits.items():
        if mean_s > 0:
            yield _measure(f"wait/{name}", "s", mean_s, kinds[name][chosen].astype(float))


def _unsure_of_samples(rank: RankMetrics) -> dict[str, float]:
    """Return stage -> standard error of its share of the step, where samples correct it.

    Another recording of the same program may be just below what is corrected.
    """
    estimate = rank.estimate
    if estimate is None or not estimate.corrections:
        return {}
    drawn = estimate.drawn(rank.stages)
    return {name: math.hypot(float(shares.std()), CLEARLY / 2) for name, shares in drawn.items()}


def _quantiles(step: StepSummary, walls: FloatArray) -> Iterator[Measure]:
    """Return the median and 95th percentile of the step.

    With few steps the percentile rests on a handful of them, so it gets no interval.
    """
    for name, value, at in (("median", step.median_s, 0.5), ("p95", step.p95_s, 0.95)):
        error = error_of(lambda drawn, at=at: np.quantile(drawn, at, axis=-1), walls)  # type: ignore[misc]
        middle = float(np.quantile(walls, at))
        known = middle > 0 and len(walls) * min(at, 1 - at) >= _MIN_TAIL_VALUES
        yield replace(
            _measure(f"step/{name}", "s", value, walls), error=error / middle if known else math.nan
        )


def _stage(
    rank: RankMetrics,
    name: str,
    mean_s: float,
    chosen: "np.ndarray[tuple[int], np.dtype[np.bool_]]",
) -> Iterator[Measure]:
    """Yield a stage of the step.

    Where it is made of CPU time, that of the main thread in it follows.
    """
    series = rank.stages[name][chosen]
    yield _measure(
        f"stage/{name}",
        "s",
        mean_s,
        series,
        kind=Influence.NONE if name in _NOT_OF_CPU else Influence.THREAD,
    )
    if (
        name in CPU_TIMED_STAGES
        and (cpu := _main_thread(rank, CPU_TIMED_STAGES[name], "cpu")) is not None
    ):
        queued = _main_thread(rank, CPU_TIMED_STAGES[name], "runqueue")
        own = float(series.sum() - (queued[chosen].sum() if queued is not None else 0.0))
        if own > 0 and cpu[chosen].sum() >= _CPU_BOUND * own:
            yield _measure(
                f"cpu/{name}",
                "s",
                float(cpu[chosen].mean()) / 1e9,
                cpu[chosen],
                kind=Influence.CPU,
                clock="cpu",
            )


def _main_thread(rank: RankMetrics, stage: Stage, clock: str) -> FloatArray | None:
    """Return float64 [steps], ns of a clock of the main thread in a stage's records.

    None where it was not measured.
    """
    assert rank.steps is not None
    records = rank.main.of(stage)
    records = records[(records[clock] >= 0) & (records["thread"] == 0)]
    if not len(records):
        return None
    steps = rank.steps
    at = steps.boundaries.step_of(records["start"])
    inside = at >= 0
    return np.bincount(at[inside], records[clock][inside], len(steps.start)).astype(float)


def _waiting_factor(rank: RankMetrics) -> float | None:
    """Return time over time with a CPU of the main thread in forward and backward.

    None where the kernel does not tell.
    """
    if rank.steps is None:
        return None
    chosen, wall, queued = counted_in(rank), 0.0, 0.0
    for stage in CPU_TIMED_STAGES.values():
        walls, waited = _main_thread(rank, stage, "wall"), _main_thread(rank, stage, "runqueue")
        if walls is not None and waited is not None:
            wall, queued = wall + float(walls[chosen].sum()), queued + float(waited[chosen].sum())
    return wall / (wall - queued) if wall > queued else None


def _of_samples(rank: RankMetrics, report: Report) -> Iterator[Measure]:
    """Return the CPU time and blocked time of making a sample, and what a sample is made of."""
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
            yield _measure(f"work/{name}", "1", value, pixels)


def _batches(rank: RankMetrics, clock: str) -> FloatArray:
    """Return float64 [n], ns per sample of each batch that was made, in order of time."""
    batches = np.concatenate([process.batches for process in rank.makers.processes])
    batches = batches[
        np.isin(batches["source"], list(rank.makers.loaders)) & (batches["samples"] > 0)
    ]
    steps = rank.steps
    if (
        steps is not None
        and rank.first < len(steps.start)
        and (late := batches["start"] >= steps.start[rank.first]).sum() >= MIN_VALUES
    ):
        batches = batches[late]  # the first ones import, allocate and fill caches
    batches = batches[np.argsort(batches["start"], kind="stable")]
    if clock == "working":  # or blocked: without waiting for a CPU
        spent = np.maximum(batches["wall"] - np.maximum(batches["runqueue"], 0), 0)
    elif clock == "blocked":
        spent = np.maximum(
            batches["wall"] - np.maximum(batches["cpu"], 0) - np.maximum(batches["runqueue"], 0), 0
        )
    else:
        spent = np.maximum(batches["cpu"], 0)
    return np.asarray(spent / batches["samples"])


def _sample(rank: RankMetrics, id: str, clock: str, value: float, batches: FloatArray) -> Measure:
    """Return a stage's part of a sample.

    Its error is that of the whole, of which every batch was timed, and that of its share of the
    whole, which only samples in detail tell.
    """
    measure = _measure(
        id,
        "s",
        value,
        batches,
        kind=Influence.CPU if clock == "cpu" else Influence.NONE,
        clock=clock,
    )
    name = id.partition("/")[2]
    share = (
        0.0
        if name in ("total", "collate", "transport")
        else _share_error(rank.details, name, clock, rank.samples)
    )
    return replace(measure, error=math.hypot(measure.error, share))


def _share_error(details: SampledDetails, name: str, clock: str, samples: int) -> float:
    """Return the relative standard error of a stage's share of the samples' time.

    It is NaN where one sample was looked at.
    """

    def spent(of: dict[str, FloatArray]) -> FloatArray:
        return (
            of["cpu"]
            if clock == "cpu"
            else np.maximum(of["wall"] - of["cpu"] - of["runqueue"], 0.0)
        )

    parts = {
        stage: spent({at: details.sum(stage, at) for at in details.whole})
        for stage in details.nbytes
    }
    whole = spent(details.whole)
    part = parts[name] if name in parts else whole - sum(parts.values())
    ratio, error = details.share(part, samples, whole)
    return error / ratio if error is not None and ratio > 0 else math.nan


def _of_code(rank: RankMetrics, report: Report) -> Iterator[Measure]:
    """Return what functions of the program take: its error holds that of what they are parts of.

    Of making a sample, that is a share of its time without waiting for a CPU, which other programs
    lengthen most.
    """
    if report.user_code is None or report.step is None:
        return
    workers = report.workers
    wholes = {side.CODE_OF_STEP: (report.step.mean_s, relative(means_of(rank)), Influence.THREAD)}
    total = workers.per_sample.get("total") if workers is not None else None
    if total is not None and total.cpu_s:
        whole_s = total.cpu_s + (total.blocked_s or 0.0)
        known = relative(_batches(rank, "working"))
        wholes[side.CODE_OF_SAMPLE] = whole_s, known, Influence.CPU
    for one in side.function_shares(report.user_code):
        if one.group in wholes:
            whole_s, (error, drift), kind = wholes[one.group]
            yield Measure(
                f"{one.group}/{one.name}",
                one.group,
                one.name,
                "s",
                "wall",
                one.share * whole_s,
                math.hypot(one.error, error),
                drift,
                kind,
                side.UNSEEN * whole_s,
            )


def _of_gauges(report: Report) -> Iterator[Measure]:
    """Return the gauges of the machine that vary."""
    for gauge in report.gauges:
        if gauge.maximum > gauge.minimum:
            yield _measure(f"gauge/{gauge.name}", gauge.unit, gauge.mean, np.array(gauge.values))


def _of_collectives(report: Report, shown: str) -> Iterator[Measure]:
    """Return what the shown rank's step goes to, where ranks were compared.

    One run gives no interval.
    """
    parts = report.ranks[shown].comm if shown in report.ranks else None
    for name, value in (vars(parts) if parts is not None else {}).items():
        if value:
            yield _measure(f"collective/{name.removesuffix('_s')}", "s", value, np.zeros(0))


def _of_trace(report: Report) -> Iterator[Measure]:
    """Yield the step and its stages of a trace, from the columns of its figure.

    There is one column per step, up to 600.
    """
    step = report.step
    if step is None:
        return
    series = step.series
    columns = {name: np.array(values) for name, values in series.stages.items()}
    walls = np.sum(list(columns.values()), axis=0) if columns else np.array(series.wall_s)
    yield _measure("step/mean", "s", step.mean_s, walls)
    yield from _quantiles(step, walls)
    for name, value in step.stages.items():
        if name in columns:
            yield _measure(f"stage/{name}", "s", value, columns[name])


def compared_run(path: Path) -> ComparedRun:
    """Read a run folder, or one that ``feedline ingest`` made of traces.

    Raises:
        RunNotFound: there is none, or it holds several trainings.
        RunDamaged, SchemaTooNew: it cannot be read.
    """
    folder, number = reports_of_run.place(path, None)
    run = open_run(path) if number is not None else require_one_training(open_run(folder))
    report = reports_of_run.report_of(run, reports_of_run.ceilings_of(folder))
    manifest = run.ranks[min(run.ranks)].manifest
    if reports_of_run.holds_traces(run):
        measures = [*_of_trace(report), *_of_collectives(report, next(iter(report.ranks)))]
        waiting = None
    else:
        rank = _shown_rank(run, report)
        measures, waiting = list(_measures_of(rank, report)), _waiting_factor(rank)
    return ComparedRun(
        report,
        {measure.id: measure for measure in measures},
        waiting,
        manifest.environment,
        tuple(_unread(run, report)),
        int(str(manifest.place.get("world_size", 1))),
    )


def _unread(run: Run, report: Report) -> list[int]:
    """Return the ranks of the last start that no figure includes.

    Their records are missing or damaged.
    """
    places = [place for place, _ in rank_folders(run.ranks[min(run.ranks)].folder.parent)]
    last = max((restart for _, restart in places), default=0)
    return sorted(
        number for number, restart in places if restart == last and str(number) not in report.ranks
    )


def _shown_rank(run: Run, report: Report) -> RankMetrics:
    """Return the rank that the report's figures are of."""
    ranks = gather_ranks(run, [])
    return ranks[report.shown if report.shown in ranks else min(ranks)]


def _measures_of(rank: RankMetrics, report: Report) -> Iterator[Measure]:
    """Yield all of a recorded run."""
    yield from _of_steps(rank, report)
    yield from _of_samples(rank, report)
    yield from _of_code(rank, report)
    yield from _of_collectives(report, str(rank.rank.number))
    yield from _of_gauges(report)
