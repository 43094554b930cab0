"""What one rank did, from its records: its mean step, and what that takes of the machine."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from feedline.analysis.intervals import FloatArray, IntArray, holds, overlap
from feedline.analysis.measure import waits
from feedline.analysis.measure.boundaries import evaluated_loaders
from feedline.analysis.measure.costs import BatchProducers, SampledDetails, costs_by_stage
from feedline.analysis.measure.counted_steps import Counted, Estimate, samples_in_rests
from feedline.analysis.measure.garbage import collection
from feedline.analysis.measure.kept_windows import batches_stand_for, passes
from feedline.analysis.measure.model import Cost, Gauge, Moved, Throughput
from feedline.analysis.measure.pace import first_step, throughput_of
from feedline.analysis.measure.stages import STAGE_OF_DETAIL, STEP_STAGES
from feedline.analysis.measure.step_model import Flop, StepSeries, StepSummary
from feedline.analysis.measure.steps import Steps, steps_of
from feedline.analysis.traces.launching import GpuWork
from feedline.analysis.traces.windows import gpu_work
from feedline.profiler.events import Arithmetic, Flag, Stage
from feedline.profiler.store.record_columns import Records
from feedline.profiler.store.run_folder import Rank
from feedline.profiler.store.segment_reader import Process

#: What happens in a dataset's ``__getitem__``.
_IN_GETITEM = (*STAGE_OF_DETAIL.values(), "dataset")

_NAMES = {int(one): one.name.lower() for one in Arithmetic if one is not Arithmetic.UNKNOWN}
_FEWEST_READINGS = 3  # of a gauge that is read once a second: fewer say little about the steps
_STAGES = {"transport": Stage.TRANSPORT, "pin": Stage.PIN, "copy": Stage.COPY}
_TWICE = 2.0  # as long as evaluation usually takes: what takes longer is not the same
_MOSTLY = 0.5  # of the time of evaluation
COLUMNS = 600  # points of a series: one per pixel column of a figure


def _flop(main: Process, steps: Steps) -> Flop | None:
    """Return the operations of the step that was counted, None when none was."""
    counted = main.view(Stage.FLOP)
    if not len(counted):
        return None
    end = int(counted["start"][-1] + counted["wall"][-1])
    at = int(np.searchsorted(steps.start, end, "right")) - 1
    inside = at >= 0 and end <= steps.boundaries.end[at] and steps.samples[at]
    samples = float(steps.samples[at]) if inside else float(steps.samples.mean())
    if not samples:
        return None
    return Flop(
        float(counted["forward_flop"][-1]),
        float(counted["backward_flop"][-1]),
        samples,
        _NAMES.get(int(counted["arithmetic"][-1]), ""),
    )


def _of_steps(main: Process, steps: Steps, *stages: Stage) -> Records:
    """Return the main thread's records of stages whose wait for a CPU was measured.

    Evaluation is left out: it is not part of the steps.
    """
    records = main.of(*stages)
    measured = (records["runqueue"] >= 0) & (records["thread"] == 0)
    return records[measured & ~holds(steps.boundaries.evaluation, records["start"])]


def runqueue_s(main: Process, steps: Steps, first: int, *stages: Stage) -> float | None:
    """Return how long the main thread was runnable without a CPU inside a mean step, s.

    Args:
        first: index of the first step that counts.
        stages: whose records are looked at.
    """
    records = _of_steps(main, steps, *stages)
    inside = steps.boundaries.step_of(records["start"]) >= first
    if not inside.any():
        return None
    return float(records["runqueue"][inside].sum()) / (len(steps.start) - first) / 1e9


def _queued_share(main: Process, steps: Steps, first: int, *stages: Stage) -> float | None:
    """Return the share (0 to 1) of the time in which the main thread wants a CPU that it has none.

    Only these stages inside steps count. None: not measured.

    Args:
        first: index of the first step that counts.
    """
    records = _of_steps(main, steps, *stages)
    records = records[records["cpu"] >= 0]
    records = (
        records[records["start"] >= steps.start[first]] if first < len(steps.start) else records[:0]
    )
    queued = float(records["runqueue"].sum())
    wanted = float((records["runqueue"] + records["cpu"]).sum())
    return queued / wanted if wanted else None


def queued_ns(main: Process, steps: Steps, *stages: Stage) -> IntArray:
    """Return how long the main thread was runnable without a CPU, in these stages.

    int64 [steps], ns; 0 where that was not measured.
    """
    records = _of_steps(main, steps, *stages)
    records = records[records["runqueue"] > 0]
    at = steps.boundaries.step_of(records["start"])
    inside = at >= 0
    queued = np.minimum(records["runqueue"], records["wall"])[inside]
    return np.minimum(
        np.bincount(at[inside], queued, len(steps.start)).astype(np.int64), steps.wall
    )


def cpu_s(steps: Steps, first: int, gauge: Gauge, origin_ns: int, mean_s: float) -> float | None:
    """Return the mean CPU seconds a step of the training process and all it started.

    None: too few readings while the steps ran.

    Args:
        gauge: CPU seconds per second of the tree of processes, over the whole run.
        origin_ns: the time from which its readings are counted.
        mean_s: of all steps, also those that were only counted: recorded ones can be longer.
    """
    if first >= len(steps.wall) or len(gauge.at_s) < _FEWEST_READINGS:
        return None
    at = (np.array(gauge.at_s) * 1e9).astype(np.int64) + origin_ns
    evaluation = steps.boundaries.evaluation
    since = np.append(at[0], at[:-1])  # a rate is that of the time since the reading before
    inside = (since >= steps.start[first]) & (at <= steps.boundaries.end[-1])
    inside &= overlap(since, at, evaluation[:, 0], evaluation[:, 1]) == 0
    rates = np.array(gauge.values)[inside]
    return float(rates.mean()) * mean_s if len(rates) >= _FEWEST_READINGS else None


def _gpu_stages(main: Process, steps: Steps, first: int) -> dict[str, float] | None:
    """Return the mean seconds per step of the GPU by stage; None when no GPU was timed.

    A stage's mean is over the steps all of whose records of that stage were timed: not those whose
    events were read after a window ended. Evaluation is left out.

    Args:
        first: index of the first step that counts.
    """
    evaluation, timed = steps.boundaries.evaluation, main.view(Stage.GPU)
    timed = timed[~holds(evaluation, timed["host_start"])]
    number_of_steps = len(steps.wall) - first
    means: dict[str, float] = {}
    for number in sorted(set(timed["of_stage"].tolist())):
        hosts = main.of(Stage(number))
        hosts = hosts[~holds(evaluation, hosts["start"])]
        marks = timed[timed["of_stage"] == number]
        step = steps.boundaries.step_of(marks["host_start"]) - first
        counts = np.bincount(step[step >= 0], minlength=number_of_steps)
        wanted = steps.boundaries.step_of(hosts["start"]) - first
        whole = (counts > 0) & (
            counts == np.bincount(wanted[wanted >= 0], minlength=number_of_steps)
        )
        if whole.any():
            spent = np.bincount(step[step >= 0], marks["wall"][step >= 0], number_of_steps)
            means[Stage(number).name.lower()] = float(spent[whole].mean()) / 1e9
    return means or None


def _loaders_without_steps(main: Process) -> frozenset[int]:
    """Return the loaders that a program without a step asked; not those of evaluation, if others."""
    asked = frozenset(main.of(Stage.NEXT)["source"].tolist())
    return asked - evaluated_loaders(main) or asked


def moved_per_step(main: Process, steps: Steps, first: int) -> dict[str, Moved]:
    """Return means per step of each stage, of the recorded steps that count.

    A stage that did not occur is left out, and evaluation.

    Args:
        first: index of the first step that counts.
    """
    number_of_steps = len(steps.wall) - first
    means = {}
    for name, stage in _STAGES.items():
        records = main.of(stage)
        inside = steps.boundaries.step_of(records["start"]) >= first
        records = records[inside & ~holds(steps.boundaries.evaluation, records["start"])]
        if len(records):
            nbytes, measured = float(records["nbytes"].sum()), records["cpu"][records["cpu"] >= 0]
            pageable = float(records["nbytes"][records["flags"] & Flag.PINNED == 0].sum())
            means[name] = Moved(
                times=len(records) / number_of_steps,
                nbytes=nbytes / number_of_steps,
                cpu_s=float(measured.sum()) / number_of_steps / 1e9 if len(measured) else None,
                pageable=pageable / nbytes if nbytes else 0.0,
            )
    return means


@dataclass(frozen=True)
class RankMetrics:
    """What one rank did.

    Attributes:
        steps: None when it never made a step.
        first: index of the first step that counts in the means.
        ready: (loader, batch key) -> ns at which a worker had made the batch.
        makers: who makes the training loaders' batches.
        details: their samples seen in detail.
    """

    rank: Rank
    main: Process
    workers: list[Process]
    steps: Steps | None
    first: int
    ready: dict[tuple[int, int], int]
    makers: BatchProducers
    details: SampledDetails

    @classmethod
    def of(cls, rank: Rank) -> "RankMetrics":
        """Read a rank.

        Raises:
            RunDamaged: the training process's records are missing.
        """
        main = rank.main
        workers = [process.without_failed for process in rank.processes if process.is_worker]
        steps = steps_of(main)
        loaders = steps.boundaries.training_loaders if steps else _loaders_without_steps(main)
        makers = BatchProducers(
            [
                *(w for w in workers if w.header["loader"] in loaders),
                *([main.without_failed] if len(main.of(Stage.FETCH)) else []),
            ],
            loaders,
        )
        details = SampledDetails.of_all(makers.processes, loaders)
        return cls(
            rank,
            main,
            workers,
            steps,
            first_step(main, steps) if steps else 0,
            _ready_times(workers),
            makers,
            details,
        )

    @cached_property
    def stages(self) -> dict[str, FloatArray]:
        """Stage -> float64 [steps], ns, in the order of the step.

        A loader's work in the main thread is split by what samples cost.
        """
        assert self.steps is not None
        stages = {name: values.astype(float) for name, values in self.steps.stages.items()}
        making = stages.pop("samples", None)
        if making is not None:
            parts = {
                name: cost.wall_s for name, cost in self.sample_costs.items() if name in _IN_GETITEM
            }
            whole = sum(parts.values())
            for name, part in (parts if whole else {"dataset": 1.0}).items():
                stages[name] = stages.get(name, 0.0) + making * part / (whole or 1.0)
        ordered = [
            *(name for name in STEP_STAGES[:-1] if name in stages),
            *sorted(set(stages) - set(STEP_STAGES)),
            "other",
        ]
        return {name: stages[name] for name in ordered if stages[name].any() or name == "other"}

    @cached_property
    def counted(self) -> Counted:
        """The steps that were only counted."""
        return Counted.of(self.main)

    @cached_property
    def estimate(self) -> Estimate | None:
        """What the recorded steps say of those; None where all were recorded."""
        if self.steps is None:
            return None
        estimate = Estimate.of(self.main, self.steps, self.first)
        if estimate is None or self.loader_elsewhere:
            return estimate
        seen = samples_in_rests(self.rank, self.counted.start, self.counted.end)
        return estimate if seen is None else estimate.corrected(self.stages, seen)

    @property
    def loader_elsewhere(self) -> bool:
        """Whether only other threads ask the loaders that feed the steps."""
        return (
            self.steps is not None
            and len(self.steps.boundaries.elsewhere) > 0
            and not len(self.steps.asked)
        )

    @property
    def in_rests(self) -> tuple[int, int]:
        """Batches and samples that were only counted in rests.

        They are (0, 0) where the loader has workers, which record theirs.
        """
        if any(process.is_worker for process in self.makers.processes):
            return 0, 0
        taken = [
            both for loader, both in self.counted.taken.items() if loader in self.makers.loaders
        ]
        return sum(batches for batches, _ in taken), sum(samples for _, samples in taken)

    @property
    def samples(self) -> int:
        """Samples made, also ahead of the training's end, as far as their making was recorded."""
        return self.makers.sums(Stage.FETCH)["samples"]

    @cached_property
    def gpu_work(self) -> GpuWork | None:
        return gpu_work(self.rank, self.main)

    @cached_property
    def sample_costs(self) -> dict[str, Cost]:
        samples = self.counted_makers.sums(Stage.FETCH)["samples"]
        return costs_by_stage(self.details, self.counted_makers, samples) if samples else {}

    @property
    def counted_since(self) -> int:
        """The start of the first step that counts in the means, ns; 0 where there is none."""
        steps = self.steps
        return int(steps.start[self.first]) if steps and self.first < len(steps.start) else 0

    @cached_property
    def counted_makers(self) -> BatchProducers:
        """Without the batches made before the first step that counts, where those are the fewer."""
        later = replace(self.makers, since=self.counted_since)
        most = 2 * later.sums(Stage.FETCH)["records"] >= self.makers.sums(Stage.FETCH)["records"]
        return later if most else self.makers


def step_summary(rank: RankMetrics) -> StepSummary | None:
    """Return the mean step, None when there is none."""
    steps = rank.steps
    if steps is None or not len(steps.wall):
        return None
    kinds = waits.classify(steps, rank.ready, rank.workers, rank.makers.alone)
    recorded_s = float(steps.wall[rank.first :].mean()) / 1e9
    mean = (
        _recorded(rank, steps, kinds)
        if rank.estimate is None
        else _estimated(rank, rank.estimate, kinds)
    )
    evaluation = steps.boundaries.evaluation
    evaluated, of = np.unique(_made_by(rank, steps, evaluation[:, 1]), return_inverse=True)
    made = int(_made_by(rank, steps, np.array([np.iinfo(np.int64).max]))[0])
    again = evaluated if ((evaluated > 0) & (evaluated < made)).any() else evaluated[evaluated > 0]
    took = np.bincount(of, evaluation[:, 1] - evaluation[:, 0], len(evaluated)) / 1e9
    took *= steps.boundaries.evaluation_stands_for
    all_kept = rank.main.stride == 1
    queued_s = runqueue_s(rank.main, steps, rank.first, Stage.FORWARD, Stage.BACKWARD)
    return StepSummary(
        mean_s=mean.s,
        median_s=float(np.median(mean.walls)),
        p95_s=float(np.quantile(mean.walls, 0.95)),
        stages=mean.stages,
        waits=mean.waits,
        boundary=steps.boundaries.by,
        evaluation_s=float(took.sum()),
        evaluations=len(again) if all_kept else _evaluated_passes(rank.main, steps),
        evaluation_once_s=_once_s(evaluated, took, made) if all_kept else 0.0,
        evaluation_loads=_loads(evaluation, rank.main.of(Stage.NEXT)),
        evaluation_period=float(np.median(np.diff(again))) if len(again) > 1 and all_kept else None,
        series=series(steps.start, steps.wall, rank.stages),
        gpu_stages=_gpu_stages(rank.main, steps, rank.first),
        gpu_work=rank.gpu_work,
        flop=_flop(rank.main, steps),
        runqueue_s=queued_s / recorded_s * mean.s if queued_s else queued_s,
        main_runqueue_share=_main_runqueue_share(rank),
        sampled=None if rank.estimate is None else rank.estimate.sampled(rank.stages),
        garbage=collection(
            rank.main, steps.boundaries, rank.first, steps.collecting, rank.stages, mean.stages
        ),
    )


def _loads(evaluation: IntArray, asked: Records) -> bool:
    """Return whether evaluation mostly lies between requests to loaders.

    Rollouts ask none, also where an evaluation follows them.
    """
    inside = asked[holds(evaluation, asked["start"])]
    of = np.searchsorted(evaluation[:, 0], inside["start"], "right") - 1
    begin, end = evaluation[:, 1].copy(), evaluation[:, 0].copy()
    np.minimum.at(begin, of, inside["start"])
    np.maximum.at(end, of, inside["start"] + inside["wall"])
    whole = int((evaluation[:, 1] - evaluation[:, 0]).sum())
    return bool(len(inside)) and int(np.maximum(end - begin, 0).sum()) >= _MOSTLY * whole


def _evaluated_passes(main: Process, steps: Steps) -> int:
    """Return the passes over the loader that was evaluated on most; 0: there is none."""
    cut = steps.boundaries
    begun = passes(main, batches_stand_for(main, cut.training_loaders, cut.by))
    others = begun.keys() - cut.training_loaders - cut.unused
    return max((begun[loader] for loader in others), default=0)


def _once_s(evaluated: IntArray, took: FloatArray, made: int) -> float:
    """Return what evaluation before the first step and after the last took that happens once, s.

    Args:
        evaluated: int64 [n], how many steps were made by each; ascending.
        took: float64 [n], s.
        made: steps of the training.
    """
    around = (evaluated == 0) | (evaluated >= made)
    if around.all():  # a single one after the last step may be that of each epoch
        return float(took[evaluated == 0].sum())
    usual = float(np.median(took[~around]))
    longer = np.where(took > _TWICE * usual, took - usual, 0.0)
    return float(longer[around].sum())


def _made_by(rank: RankMetrics, steps: Steps, times: IntArray) -> IntArray:
    """Return how many steps were made by each of these times, int64 [n], those only counted too."""
    counted = rank.counted
    before = np.concatenate([[0], np.cumsum(counted.steps)])
    ended = np.searchsorted(np.sort(steps.boundaries.end), times, "right")
    recorded = ended + _updated_by(rank, steps, times, ended)
    return np.asarray(recorded + before[np.searchsorted(counted.end, times, "right")])


def _updated_by(
    rank: RankMetrics, steps: Steps, times: IntArray, ended: IntArray
) -> npt.NDArray[np.bool_]:
    """Mark times within a step whose update had been made by then, bool [n].

    Such a step lasts until the loader is asked again, as one of a library that asks a batch ahead.

    Args:
        ended: int64 [n], steps that had ended by then.
    """
    never = np.array([np.iinfo(np.int64).max])
    updates = np.sort(rank.main.of(Stage.OPTIMIZER)["start"])
    start, end = (
        np.concatenate([np.sort(edge), never])[ended]
        for edge in (steps.boundaries.start, steps.boundaries.end)
    )
    at = np.searchsorted(updates, times)
    last, following = np.concatenate([[-1], updates])[at], np.concatenate([updates, never])[at]
    return np.asarray((last >= start) & (following >= end))


class _Mean(NamedTuple):
    """Of all steps that count, seconds.

    Attributes:
        walls: float64 [n], of single steps.
        stages: they sum to ``s``.
        waits: the stage "wait" by its kinds.
    """

    s: float
    walls: FloatArray
    stages: dict[str, float]
    waits: dict[str, float]


def _recorded(rank: RankMetrics, steps: Steps, kinds: Mapping[str, IntArray]) -> _Mean:
    """Return the mean step where every step was recorded."""
    walls = steps.wall[rank.first :] / 1e9
    stages, split = (
        {name: float(ns[rank.first :].mean()) / 1e9 for name, ns in parts.items()}
        for parts in (rank.stages, kinds)
    )
    return _Mean(float(walls.mean()), walls, stages, split)


def _estimated(rank: RankMetrics, estimate: Estimate, kinds: Mapping[str, IntArray]) -> _Mean:
    """Return the mean step where most of them were only counted."""
    stages = {name: ns / 1e9 for name, ns in estimate.means(rank.stages).items()}
    means = {name: float(ns[rank.first :].mean()) for name, ns in kinds.items()}
    whole, waiting = sum(means.values()), stages.get("wait", 0.0)
    split = {name: waiting * ns / whole if whole else 0.0 for name, ns in means.items()}
    return _Mean(estimate.mean_ns / 1e9, estimate.walls() / 1e9, stages, split)


def series(start: IntArray, wall_ns: IntArray, stages: dict[str, FloatArray]) -> StepSeries:
    """Thin the steps to at most COLUMNS columns, each with its minimum, median and maximum.

    Args:
        start, wall_ns: int64 [steps], ns.
        stages: name -> float64 [steps], ns.
    """
    groups = np.array_split(np.arange(len(wall_ns)), min(len(wall_ns), COLUMNS))
    wall = wall_ns / 1e9
    return StepSeries(
        start_s=[float(start[group[0]] - start[0]) / 1e9 for group in groups],
        steps=[len(group) for group in groups],
        wall_min_s=[float(wall[group].min()) for group in groups],
        wall_s=[float(np.median(wall[group])) for group in groups],
        wall_max_s=[float(wall[group].max()) for group in groups],
        stages={
            name: [float(values[group].mean()) / 1e9 for group in groups]
            for name, values in stages.items()
        },
    )


def throughput(rank: RankMetrics) -> Throughput:
    """Return samples and steps a second over the steps that count."""
    return throughput_of(rank.main, rank.steps)


def _main_runqueue_share(rank: RankMetrics) -> float | None:
    """Return the share of the steps that the main thread was runnable without a CPU.

    Only the stages where that is measured count.
    """
    steps = rank.steps
    if steps is None:
        return None
    waits_s = runqueue_s(rank.main, steps, rank.first, Stage.NEXT, Stage.FORWARD, Stage.BACKWARD)
    mean_s = float(steps.wall[rank.first :].mean()) / 1e9
    return waits_s / mean_s if waits_s is not None and mean_s else None


def main_queued_share(rank: RankMetrics) -> float | None:
    """Return the share of the time in which the main thread wants a CPU that it has none.

    It counts in forward and backward.
    """
    return (
        _queued_share(rank.main, rank.steps, rank.first, Stage.FORWARD, Stage.BACKWARD)
        if rank.steps is not None
        else None
    )


def _ready_times(workers: list[Process]) -> dict[tuple[int, int], int]:
    """Return when a worker had made each batch, ns, by loader and batch key."""
    ready: dict[tuple[int, int], int] = {}
    for worker in workers:
        batches = worker.batches
        ready.update(
            zip(
                zip(batches["source"].tolist(), batches["number"].tolist()),
                (batches["start"] + batches["wall"]).tolist(),
            )
        )
    return ready
