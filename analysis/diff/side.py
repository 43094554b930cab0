"""The runs of one side of a comparison, what the machine did to them, and what their functions took."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from feedline.analysis.diff.run_diff import RunName
from feedline.analysis.explain.model import Report
from feedline.analysis.measure.code_places import (
    BACKWARD,
    EVALUATION,
    MAKING,
    OPTIMIZER,
    SAMPLER,
    START,
    WAIT,
)
from feedline.analysis.measure.code_tree import MAIN
from feedline.analysis.measure.user_code import UserCode
from feedline.analysis.text.formatting import called
from feedline.profiler.events import Stage

#: Groups of quantities: functions that make samples, and others of the step.
CODE_OF_SAMPLE, CODE_OF_STEP = "code_sample", "code_step"
#: What is seen there is the training loop itself, whose parts are the stages.
_OF_LOOP = (WAIT, START, SAMPLER, BACKWARD, OPTIMIZER)
# sampled stacks of a group: of fewer, a function that was not seen may still be there
_FEWEST_STACKS = 50
#: Of the whole: what a function takes that was not seen. Less than 1 % is not told, and of few
#: stacks none may be in it.
UNSEEN = math.hypot(0.01, 1 / _FEWEST_STACKS)
#: Stages in which the main thread's CPU time is measured.
CPU_TIMED_STAGES = {"forward": Stage.FORWARD, "backward": Stage.BACKWARD}
#: Groups of quantities that are per step.
OF_STEP = ("step", "stage", "cpu", "wait", "collective", CODE_OF_STEP)
#: Groups of quantities that sampled stacks tell.
OF_CODE = (CODE_OF_SAMPLE, CODE_OF_STEP)
_PIXELS, _SAME_PIXELS = "work/output_pixels", 1.01
MEASURED = 2  # degrees of freedom, from which on run-to-run variation is measured


@dataclass(frozen=True)
class _FunctionShare:
    """A function of the program, without those of the program that it calls.

    Attributes:
        group: one of those above.
        name: with its file: ``tokenize() in data.py``.
        share: (0 to 1) of making a sample, or of the step.
        error: of ``share``, relative.
    """

    group: str
    name: str
    share: float
    error: float


def _known_groups(code: UserCode | None) -> set[str]:
    """Return the groups of which enough stacks were sampled to compare their functions."""
    if code is None:
        return set()
    counts = {CODE_OF_SAMPLE: code.making_samples, CODE_OF_STEP: code.step_samples}
    return {group for group, count in counts.items() if count >= _FEWEST_STACKS}


def function_shares(code: UserCode) -> Iterator[_FunctionShare]:
    """Return the program's functions, those of several places once."""
    loop = {
        (one.file, one.function)
        for one in code.functions
        if one.kind == MAIN and one.place in _OF_LOOP
    }
    shares: dict[tuple[str, str], float] = {}
    for one in code.functions:
        if one.kind == MAIN and one.place not in MAKING:
            if one.place == EVALUATION or (one.file, one.function) in loop:
                continue
        elif one.place not in MAKING:
            continue
        key = (
            CODE_OF_SAMPLE if one.place in MAKING else CODE_OF_STEP,
            _named(one.function, one.file),
        )
        shares[key] = shares.get(key, 0.0) + one.own_share
    for (group, name), share in shares.items():
        number = code.making_samples if group == CODE_OF_SAMPLE else code.step_samples
        if share > 0 and number:
            error = math.sqrt((1 - min(share, 1.0)) / share / number * code.spread)
            yield _FunctionShare(group, name, share, error)


def _named(function: str, file: str) -> str:
    """Return the name of a function with brackets, or of a line of a module without."""
    return f"{called(function)} in {file}"


class Influence:
    """What the machine does to a quantity.

    It is nothing, CPU time, or time of a thread that waits for CPUs.
    """

    NONE = "none"
    CPU = "cpu"
    THREAD = "thread"


@dataclass(frozen=True)
class Measure:
    """One quantity of one run.

    Attributes:
        id, group, name, unit, clock: as in ``Quantity``.
        value: as the report has it.
        error: of ``value``, relative, from how the run's own values scatter; NaN: too few values.
        drift: relative standard deviation of what the machine did to it during the run; NaN: too
            few values.
        kind: what slows it down: ``cpu``, slower CPUs; ``thread``, also waiting for a CPU;
            ``none``.
        unseen: standard error, in its unit, of the value 0 of a run in which it was not seen.
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
    unseen: float = 0.0

    def absent(self) -> "Measure":
        """Return the same quantity of a run in which it does not occur."""
        return replace(self, value=0.0, error=0.0, drift=0.0)

    def divided(self, by: float) -> "Measure":
        """Divide the measure by the samples of a step."""
        return replace(self, value=self.value / by, unseen=self.unseen / by)


@dataclass(frozen=True)
class ComparedRun:
    """What one run measured.

    Attributes:
        measures: by id.
        waiting: time over time with a CPU of its main thread; None: not measured.
        environment: variables that decide how many threads there are, and others that the recorder
            keeps.
        unread: ranks without readable records, which no figure includes.
        world: ranks that were started, as the program was told.
    """

    report: Report
    measures: Mapping[str, Measure]
    waiting: float | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    unread: tuple[int, ...] = ()
    world: int = 1

    @property
    def name(self) -> RunName:
        run = self.report.run
        return RunName(run.name, run.path, run.state, self.report.throughput.steps)

    @property
    def batch(self) -> float | None:
        """Samples per step."""
        return self.report.throughput.batch_size


def _same_work(runs: Sequence[ComparedRun]) -> bool:
    """Tell whether a step of all runs is the same work for the CPUs.

    It has the same model, batch, number of ranks and size of images.
    """
    described = {
        (run.report.run.model, run.report.run.ranks, round(run.batch or 0.0)) for run in runs
    }
    pixels = [run.measures[_PIXELS].value for run in runs if _PIXELS in run.measures]
    return len(described) == 1 and (
        not pixels or (len(pixels) == len(runs) and max(pixels) < _SAME_PIXELS * min(pixels))
    )


def with_code_of_all(runs: Sequence[ComparedRun]) -> list[ComparedRun]:
    """Return runs with what sampled stacks tell only where they tell it of all of them."""
    known = set(OF_CODE).intersection(*(_known_groups(run.report.user_code) for run in runs))
    dropped = [group for group in OF_CODE if group not in known]
    return [
        replace(
            run, measures={id: one for id, one in run.measures.items() if one.group not in dropped}
        )
        for run in runs
    ]


def same_processes(runs: Sequence[ComparedRun]) -> bool:
    """Tell whether all runs start the same number of processes and threads.

    Else how long they wait for a CPU may be of their own making.
    """
    described = {
        (
            tuple(
                str(loader.settings.get("num_workers"))
                for loader in run.report.loaders
                if loader.role == "training"
            ),
            tuple(
                sorted(
                    (name, value)
                    for name, value in run.environment.items()
                    if name.endswith("_NUM_THREADS")
                )
            ),
            run.report.run.ranks,
        )
        for run in runs
    }
    return len(described) == 1


def _taken_by_others(run: ComparedRun) -> float:
    """Return the share of the CPUs that other programs used; 0 where it was not sampled."""
    cpus = run.report.cpus
    return (cpus.others or 0.0) / cpus.affinity if cpus is not None and cpus.affinity else 0.0


@dataclass(frozen=True)
class Speed:
    """How fast the CPUs were in each run, for the same work.

    That is the common change of the CPU time of all stages, so that one that changed by itself does
    not decide.

    Attributes:
        shift: run -> stage id -> log of the CPU time over its mean over all runs, in the stages
            that every run has.
        weight: stage id -> one over its variance.
        loaded: share of the CPUs that other programs used beside the run where they used most.
    """

    shifts: list[dict[str, float]]
    weight: dict[str, float]
    loaded: float = 0.0

    # groups of stages that one change may move together: those of the model, and those of a sample
    PARTS = ("cpu/", "sample/")
    FEWEST = 3  # stages that tell a machine's speed from a stage's own change
    # of a stage's CPU time between two runs on one machine, at best (docs/measured/diff.md)
    FLOOR = 0.015
    # the same of forward and backward on a CPU, whose speed depends on where a run's tensors lie in
    # memory
    OF_MODEL = 0.05
    # of any stage if other programs use all CPUs: they take caches, and their turns cost CPU time
    LOADED = 0.2
    LOADED_SAMPLE = 0.15  # the same of what a sample itself takes
    LOADED_MODEL = 0.3  # and of the CPU time of forward and backward, most of the step's
    MOST = 1.5  # times: a larger common change is not the machine's, but that of what is trained

    @classmethod
    def of(cls, before: Sequence[ComparedRun], after: Sequence[ComparedRun]) -> "Speed":
        runs = [*before, *after]
        alike = [
            id
            for id, measure in runs[0].measures.items()
            if measure.kind == Influence.CPU
            and id not in ("sample/total", "step/cpu")
            and measure.group not in OF_CODE
        ]
        ids = (
            [id for id in alike if all(_known(run.measures.get(id)) for run in runs)]
            if _same_work(runs) and same_processes(runs)
            else []
        )
        logs = {id: [math.log(run.measures[id].value) for run in runs] for id in ids}
        middle = {
            id: (np.mean(x[: len(before)]) + np.mean(x[len(before) :])) / 2
            for id, x in logs.items()
        }
        shifts = [{id: float(logs[id][at] - middle[id]) for id in ids} for at in range(len(runs))]
        weight = {
            id: 1 / (cls.FLOOR**2 + max(run.measures[id].error for run in runs) ** 2) for id in ids
        }
        loaded = max(_taken_by_others(run) for run in runs)
        speed = cls(shifts, weight, loaded)
        spread = [speed.of_run(at, "") for at in range(len(runs))]
        return (
            speed if max(spread) - min(spread) < math.log(cls.MOST) else replace(speed, weight={})
        )

    def of_run(self, at: int, without: str) -> float:
        """Return the logarithm of a run's CPU time for the same work, from all stages but one.

        It is 0 where there are too few.
        """
        ids = [id for id in self.weight if id != without]
        return self._common(self.shifts[at], ids) if len(ids) >= self.FEWEST else 0.0

    def _common(self, shift: Mapping[str, float], ids: Sequence[str]) -> float:
        medians = [self._middle(shift, part) for part in self._parts(ids)]
        return min(medians, key=abs) if min(medians) * max(medians) > 0 else 0.0

    def _parts(self, ids: Sequence[str]) -> list[list[str]]:
        parts = [[id for id in ids if id.startswith(part)] for part in self.PARTS]
        return [part for part in parts if part]

    def _middle(self, shift: Mapping[str, float], ids: Sequence[str]) -> float:
        return _weighted_median([shift[id] for id in ids], [self.weight[id] for id in ids])

    def known(self, without: str = "") -> bool:
        """Tell whether there are enough stages."""
        return len([id for id in self.weight if id != without]) >= self.FEWEST

    def floor(self, id: str) -> float:
        """Return the least relative standard deviation between two runs of a stage on one machine."""
        of_batch = id in ("sample/collate", "sample/transport")
        beside = self.LOADED
        if id.startswith("sample/") and not of_batch:
            beside = self.LOADED_SAMPLE
        elif id.startswith("cpu/") or id == "step/cpu":
            beside = self.LOADED_MODEL
        return math.hypot(
            beside * self.loaded,
            self.OF_MODEL if id.partition("/")[2] in CPU_TIMED_STAGES else self.FLOOR,
        )

    def scatter(self, without: str) -> float:
        """Return how much a stage's CPU time varies between two runs beside the common change.

        It is the standard deviation of the other stages, the one that differs most left out, which
        may have changed by itself; at least ``floor``. Those of another part are taken around the
        middle of theirs, if they are enough for one: a changed model says nothing of how samples
        vary.
        """
        ids = [id for id in self.weight if id != without]
        if len(ids) < self.FEWEST:
            return max(self.floor(without), 2 * self.FLOOR)
        moved = {id: self.shifts[-1][id] - self.shifts[0][id] for id in ids}
        common = self._common(moved, ids)
        apart = sorted(
            (abs(moved[id] - middle), self.weight[id])
            for part in self._parts(ids)
            if _part(part[0]) == _part(without) or len(part) >= self.FEWEST
            for middle in (
                common if _part(part[0]) == _part(without) else self._middle(moved, part),
            )
            for id in part
        )[:-1]
        if not apart:
            return max(self.floor(without), 2 * self.FLOOR)
        return max(
            self.floor(without),
            math.sqrt(
                sum(weight * value**2 for value, weight in apart)
                / sum(weight for _, weight in apart)
            ),
        )


def _part(id: str) -> str:
    """Return what a stage is part of: the model's (``cpu``), or a sample (``sample``)."""
    group = id.partition("/")[0]
    return {CODE_OF_SAMPLE: "sample", "step": "cpu"}.get(group, group)


def _known(measure: Measure | None) -> bool:
    return measure is not None and measure.value > 0 and math.isfinite(measure.error)


def _weighted_median(values: Sequence[float], weights: Sequence[float]) -> float:
    """Return the value that half of the weight lies below; between two where exactly half does."""
    order = np.argsort(values, kind="stable")
    sums = np.cumsum(np.array(weights)[order])
    at = int(np.searchsorted(sums, sums[-1] / 2))
    upper = (
        min(at + 1, len(order) - 1) if math.isclose(float(sums[at]), float(sums[-1]) / 2) else at
    )
    return float(values[order[at]] + values[order[upper]]) / 2
