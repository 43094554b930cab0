"""What one rank did, from its records, and its mean step."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from feedline.analysis.intervals import FloatArray, IntArray, holds
from feedline.analysis.measure import machine_use, waits
from feedline.analysis.measure.costs import BatchProducers, SampledDetails, costs_by_stage
from feedline.analysis.measure.counted_steps import Counted, Estimate
from feedline.analysis.measure.garbage import collection
from feedline.analysis.measure.kept_windows import batches_stand_for, passes
from feedline.analysis.measure.model import Cost, Throughput
from feedline.analysis.measure.pace import first_step, throughput_of
from feedline.analysis.measure.rest_samples import samples_in_rests
from feedline.analysis.measure.stages import IN_GETITEM, STEP_STAGES
from feedline.analysis.measure.step_model import StepSeries, StepSummary
from feedline.analysis.measure.steps import Steps, steps_of
from feedline.analysis.traces.gpu_work import GpuWork
from feedline.analysis.traces.windows import gpu_work
from feedline.profiler.events import Stage
from feedline.profiler.store.record_columns import Records
from feedline.profiler.store.run_folder import Rank
from feedline.profiler.store.segment_reader import Process

_TWICE = 2.0  # as long as evaluation usually takes: what takes longer is not the same
_MOSTLY = 0.5  # of the time of evaluation
COLUMNS = 600  # points of a series: one per pixel column of a figure


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
        loaders = (
            steps.boundaries.training_loaders
            if steps
            else frozenset(main.of(Stage.NEXT)["source"].tolist())
        )
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
            waits.ready_times(workers),
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
                name: cost.wall_s for name, cost in self.sample_costs.items() if name in IN_GETITEM
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
    queued_s = machine_use.runqueue_s(rank.main, steps, rank.first, Stage.FORWARD, Stage.BACKWARD)
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
        gpu_stages=machine_use.gpu_stages(rank.main, steps, rank.first),
        gpu_work=rank.gpu_work,
        flop=machine_use.flop(rank.main, steps),
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
    waits_s = machine_use.runqueue_s(
        rank.main, steps, rank.first, Stage.NEXT, Stage.FORWARD, Stage.BACKWARD
    )
    mean_s = float(steps.wall[rank.first :].mean()) / 1e9
    return waits_s / mean_s if waits_s is not None and mean_s else None


def main_queued_share(rank: RankMetrics) -> float | None:
    """Return the share of the time in which the main thread wants a CPU that it has none.

    It counts in forward and backward.
    """
    return (
        machine_use.queued_share(rank.main, rank.steps, rank.first, Stage.FORWARD, Stage.BACKWARD)
        if rank.steps is not None
        else None
    )
