"""The runs of one side of a comparison, and what the machine did to each."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from feedline.analysis.diff import measure
from feedline.analysis.diff.measure import CPU, TIMED, Measure
from feedline.analysis.diff.model import RunName
from feedline.analysis.explain import pipeline
from feedline.analysis.explain.build import gather_ranks
from feedline.analysis.explain.model import Report
from feedline.analysis.measure.gather import RankMetrics
from feedline.profiler.store.run_folder import Run, rank_folders
from feedline.profiler.store.trainings import open_run, require_one_training

#: Groups of quantities that are per step.
OF_STEP = ("step", "stage", "cpu", "wait", "collective")
PIXELS, _SAME_PIXELS = "work/output_pixels", 1.01


@dataclass(frozen=True)
class Measured:
    """What one run measured.

    Attributes:
        measures: by id.
        waiting: time over time with a CPU of its main thread; None: not measured.
        environment: variables that decide how many threads there are, and others that the recorder keeps.
        unread: ranks without readable records, which no figure includes.
        world: ranks that were started, as the program was told.
    """

    report: Report
    measures: Mapping[str, Measure]
    waiting: float | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    unread: tuple[int, ...] = ()
    world: int = 1

    @classmethod
    def of(cls, path: Path) -> "Measured":
        """Read a run folder, or one that ``feedline ingest`` made of traces.

        Raises:
            RunNotFound: there is none, or it holds several trainings.
            RunDamaged, SchemaTooNew: it cannot be read.
        """
        folder, number = pipeline.place(path, None)
        run = open_run(path) if number is not None else require_one_training(open_run(folder))
        report = pipeline.report_of(run, pipeline.ceilings_of(folder))
        manifest = run.ranks[min(run.ranks)].manifest
        if pipeline.holds_traces(run):
            found, waiting = [*measure.of_trace(report), *measure.of_collectives(report, next(iter(report.ranks)))], None
        else:
            rank = _shown_rank(run, report)
            found, waiting = list(_measures_of(rank, report)), measure.waiting_factor(rank)
        world = int(str(manifest.place.get("world_size", 1)))
        return cls(report, {one.id: one for one in found}, waiting, manifest.environment, tuple(unread(run, report)), world)

    @property
    def name(self) -> RunName:
        run = self.report.run
        return RunName(run.name, run.path, run.state, self.report.throughput.steps)

    @property
    def batch(self) -> float | None:
        """Samples per step."""
        return self.report.throughput.batch_size


def unread(run: Run, report: Report) -> list[int]:
    """Ranks of the last start that no figure includes, because their records are missing or damaged."""
    places = [place for place, _ in rank_folders(run.ranks[min(run.ranks)].folder.parent)]
    last = max((restart for _, restart in places), default=0)
    return sorted(number for number, restart in places if restart == last and str(number) not in report.ranks)


def _shown_rank(run: Run, report: Report) -> RankMetrics:
    """The rank that the report's figures are of."""
    ranks = gather_ranks(run, [])
    return ranks[report.shown if report.shown in ranks else min(ranks)]


def _measures_of(rank: RankMetrics, report: Report) -> Iterator[Measure]:
    """All of a recorded run."""
    yield from measure.of_steps(rank, report)
    yield from measure.of_samples(rank, report)
    yield from measure.of_collectives(report, str(rank.rank.number))
    yield from measure.of_gauges(report)


def _same_work(runs: Sequence[Measured]) -> bool:
    """Whether a step of all runs is the same work for the CPUs: the same model, batch, number of ranks and size of images."""
    described = {(run.report.run.model, run.report.run.ranks, round(run.batch or 0.0)) for run in runs}
    pixels = [run.measures[PIXELS].value for run in runs if PIXELS in run.measures]
    return len(described) == 1 and (not pixels or (len(pixels) == len(runs) and max(pixels) < _SAME_PIXELS * min(pixels)))


def same_processes(runs: Sequence[Measured]) -> bool:
    """Whether all runs start the same number of processes and threads: else, how long they wait for a CPU may be of their own making."""
    described = {
        (
            tuple(str(loader.settings.get("num_workers")) for loader in run.report.loaders if loader.role == "training"),
            tuple(sorted((name, value) for name, value in run.environment.items() if name.endswith("_NUM_THREADS"))),
            run.report.run.ranks,
        )
        for run in runs
    }
    return len(described) == 1


def room(run: Measured) -> float | None:
    """CPUs that a run could have used: those that it is allowed, less what other programs took of them. None: not sampled."""
    cpus = run.report.cpus
    if cpus is None or cpus.others is None or cpus.affinity is None:
        return None
    return min(cpus.allowed, cpus.affinity - cpus.others)


def _taken_by_others(run: Measured) -> float:
    """Share of the CPUs that other programs used; 0 where it was not sampled."""
    cpus = run.report.cpus
    return (cpus.others or 0.0) / cpus.affinity if cpus is not None and cpus.affinity else 0.0


def per_sample(runs: Sequence[Measured], after: Sequence[Measured]) -> bool:
    """Whether the sides have batches of different sizes, so that their steps are different work."""
    sizes = [run.batch for run in (*runs, *after)]
    known = [size for size in sizes if size]
    return len(known) == len(sizes) and max(known) > 1.01 * min(known)


def of_equal_work(run: Measured) -> Measured:
    """Times of steps divided by samples per step."""
    assert run.batch
    divided = {id: one.divided(run.batch) if one.group in OF_STEP else one for id, one in run.measures.items()}
    return replace(run, measures=divided)


@dataclass(frozen=True)
class Speed:
    """How fast the CPUs were in each run, for the same work: the common change of the CPU time of all stages, so that one that changed by
    itself does not decide.

    Attributes:
        shift: run -> stage id -> log of the CPU time over its mean over all runs, in the stages that every run has.
        weight: stage id -> one over its variance.
        loaded: share of the CPUs that other programs used beside the run where they used most.
    """

    shifts: list[dict[str, float]]
    weight: dict[str, float]
    loaded: float = 0.0

    PARTS = ("cpu/", "sample/")  # groups of stages that one change may move together: those of the model, and those of a sample
    FEWEST = 3  # stages that tell a machine's speed from a stage's own change
    FLOOR = 0.015  # of a stage's CPU time between two runs on one machine, at best (docs/measured/diff.md)
    OF_MODEL = 0.05  # the same of forward and backward on a CPU, whose speed depends on where a run's tensors lie in memory
    LOADED = 0.2  # of any stage if other programs use all CPUs: they take caches, and their turns cost CPU time
    LOADED_SAMPLE = 0.15  # the same of what a sample itself takes
    MOST = 1.5  # times: a larger common change is not the machine's, but that of what is trained

    @classmethod
    def of(cls, before: Sequence[Measured], after: Sequence[Measured]) -> "Speed":
        runs = [*before, *after]
        alike = [id for id, one in runs[0].measures.items() if one.kind == CPU and id not in ("sample/total", "step/cpu")]
        ids = [id for id in alike if all(_known(run.measures.get(id)) for run in runs)] if _same_work(runs) and same_processes(runs) else []
        logs = {id: [math.log(run.measures[id].value) for run in runs] for id in ids}
        middle = {id: (np.mean(x[: len(before)]) + np.mean(x[len(before) :])) / 2 for id, x in logs.items()}
        shifts = [{id: float(logs[id][at] - middle[id]) for id in ids} for at in range(len(runs))]
        weight = {id: 1 / (cls.FLOOR**2 + max(run.measures[id].error for run in runs) ** 2) for id in ids}
        loaded = max(_taken_by_others(run) for run in runs)
        found = cls(shifts, weight, loaded)
        spread = [found.of_run(at, "") for at in range(len(runs))]
        return found if max(spread) - min(spread) < math.log(cls.MOST) else replace(found, weight={})

    def of_run(self, at: int, without: str) -> float:
        """Log of the CPU time for the same work of one run, from all stages but one; 0 where there are too few.

        A machine slows the model and the samples alike, but a change of one of them only its own stages: where both are known, the part
        that they have in common.
        """
        ids = [id for id in self.weight if id != without]
        return self._common(self.shifts[at], ids) if len(ids) >= self.FEWEST else 0.0

    def _common(self, shift: Mapping[str, float], ids: Sequence[str]) -> float:
        parts = [[id for id in ids if id.startswith(part)] for part in self.PARTS]
        found = [_weighted_median([shift[id] for id in part], [self.weight[id] for id in part]) for part in parts if part]
        return min(found, key=abs) if min(found) * max(found) > 0 else 0.0

    def known(self, without: str = "") -> bool:
        """Whether there are enough stages."""
        return len([id for id in self.weight if id != without]) >= self.FEWEST

    def floor(self, id: str) -> float:
        """Standard deviation of how a stage differs between two runs on one machine, relative, at best."""
        of_batch = id in ("sample/collate", "sample/transport")
        beside = self.LOADED_SAMPLE if id.startswith("sample/") and not of_batch else self.LOADED
        return math.hypot(beside * self.loaded, self.OF_MODEL if id.partition("/")[2] in TIMED else self.FLOOR)

    def scatter(self, without: str) -> float:
        """Standard deviation of how a stage's CPU time differs between two runs beside the common change: that of the other stages, the one
        that differs most left out, which may have changed by itself; at least ``floor``."""
        ids = [id for id in self.weight if id != without]
        if len(ids) < self.FEWEST:
            return max(self.floor(without), 2 * self.FLOOR)
        moved = {id: self.shifts[-1][id] - self.shifts[0][id] for id in ids}
        common = self._common(moved, ids)
        apart = sorted((abs(moved[id] - common), self.weight[id]) for id in ids)[:-1]
        return max(self.floor(without), math.sqrt(sum(weight * one**2 for one, weight in apart) / sum(weight for _, weight in apart)))


def _known(one: Measure | None) -> bool:
    return one is not None and one.value > 0 and math.isfinite(one.error)


def _weighted_median(values: Sequence[float], weights: Sequence[float]) -> float:
    """The value that half of the weight lies below; between two where exactly half does."""
    order = np.argsort(values, kind="stable")
    sums = np.cumsum(np.array(weights)[order])
    at = int(np.searchsorted(sums, sums[-1] / 2))
    upper = min(at + 1, len(order) - 1) if math.isclose(float(sums[at]), float(sums[-1]) / 2) else at
    return float(values[order[at]] + values[order[upper]]) / 2
