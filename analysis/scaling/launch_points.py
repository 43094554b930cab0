"""From the records of launches to their points, samples/s with an interval.

The basis of predictions comes from them as well: the step of the fewest ranks, and the link of the
most. Launches that share no work have none.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from feedline.analysis.intervals import IntArray
from feedline.analysis.ledger.view.own_functions import NAMED
from feedline.analysis.measure.boundaries import training_loaders
from feedline.analysis.measure.counted_steps import Estimate
from feedline.analysis.measure.pace import first_step, throughput_of
from feedline.analysis.measure.rank_metrics import runqueue_s
from feedline.analysis.measure.steps import left_after, steps_of
from feedline.analysis.ranks.partition import exchanges_gradients
from feedline.analysis.ranks.read_collectives import readable_collectives, steps_and_collectives
from feedline.analysis.ranks.step_profile import ring_between, step_profile
from feedline.analysis.scaling.efficiency import DISTURBED, Point, Unit
from feedline.analysis.scaling.more_ranks import ScalingBasis
from feedline.analysis.scaling.study import counted
from feedline.analysis.text.formatting import count, share
from feedline.profiler import masks
from feedline.profiler.errors import FeedlineError, RunDamaged
from feedline.profiler.events import Stage
from feedline.profiler.message import few, name_ranks
from feedline.profiler.store.run_folder import Rank, Run

_STEP_BLOCKS, _MIN_BLOCK_STEPS = 10, 3  # blocks of steps, and steps in a block at least
_MIN_CERTAIN_STEPS = 6  # steps, below which a throughput is called doubtful
#: Ranks of a launch that are looked at: more run the same program.
_MAX_NAMED = 8
_WRAP = "Wrap the model in DistributedDataParallel or fully_shard"
_DIVIDE = "give each rank its part of the data (DistributedSampler)"


@dataclass(frozen=True)
class _Pace:
    """Mean step of one rank.

    Attributes:
        step_s: as a report has it.
        error_s: two standard errors of it.
        batch: samples in a step; 0: they were not seen.
        runqueue_s: of a step, that the main thread stood without a CPU in forward and backward;
            None: not measured.
        loop_ended: whether its loader had come to its end after the last step.
    """

    step_s: float
    error_s: float
    batch: float
    steps: int
    runqueue_s: float | None = None
    loop_ended: bool = False


def _error_s(wall: IntArray) -> float:
    """Return two standard errors of the mean step, s, from the means of blocks of steps.

    Neighbours share what disturbed them.

    Args:
        wall: int64 [steps], ns, one or more.
    """
    blocks = np.array_split(wall / 1e9, max(1, min(_STEP_BLOCKS, len(wall) // _MIN_BLOCK_STEPS)))
    means = np.array([block.mean() for block in blocks]) if len(blocks) > 1 else wall / 1e9
    return 2 * float(means.std(ddof=1)) / len(means) ** 0.5 if len(means) > 1 else float(means[0])


def _pace_of(rank: Rank) -> _Pace | None:
    """Measure a rank's pace; None: it made no step.

    Raises:
        RunDamaged: the records are missing.
    """
    main = rank.main
    steps = steps_of(main)
    if steps is None or not len(steps.wall):
        return None
    first, rate = first_step(main, steps), throughput_of(main, steps)
    estimate = Estimate.of(main, steps, first)
    wall = steps.wall[first:] if estimate is None else estimate.walls().astype(np.int64)
    step_s = 1 / rate.steps_per_s if rate.steps_per_s else 0.0
    queued_s = runqueue_s(main, steps, first, Stage.FORWARD, Stage.BACKWARD)
    ended = left_after(steps) is not None
    return _Pace(step_s, _error_s(wall), rate.batch_size or 0.0, len(wall), queued_s, ended)


def _point_of(runs: Sequence[Run]) -> Point:
    """Make a point of all ranks of one launch, from one folder or from one per node.

    Raises:
        RunDamaged: no rank made a step that can be read.
    """
    notes, idle = [], []
    paces_by_rank: dict[int, _Pace] = {}
    for run in runs:
        notes += run.notes
        for number, rank in run.ranks.items():
            try:
                pace = _pace_of(rank)
            except FeedlineError as error:
                notes.append(f"rank {number}: {error}")
                continue
            if pace is not None:
                paces_by_rank[number] = pace
                after = " after the end of an epoch" if pace.loop_ended else ""
                notes += (
                    [f"rank {number} was killed or crashed{after}"]
                    if rank.manifest.state == "cut"
                    else []
                )
            elif rank.manifest.state == "finished":
                idle.append(number)
            else:
                notes.append(f"rank {number}: no step was recorded")
    size = _world_size(runs)
    notes += _crowded(runs)
    where = ", ".join(str(run.path) for run in runs)
    if not paces_by_rank:
        raise RunDamaged(
            f"{where}: no rank recorded a step: record more steps, or give another run"
        )
    if idle:
        notes.append(
            f"{len(idle)} of {size} ranks ({few(idle, NAMED)}) made no step and count as 0"
        )
    if missing := sorted(set(range(size)) - set(paces_by_rank) - set(idle)):
        notes.append(
            f"{len(missing)} of {size} ranks are missing ({few(missing, NAMED)}): assumed to be "
            f"as fast as the others"
        )
    return _point(size, size - len(idle), list(paces_by_rank.values()), notes)


def points_of(groups: Sequence[Sequence[Run]]) -> list[Point]:
    """Make one point for each number of ranks.

    Of several runs with as many ranks: the median, from the slowest to the fastest.

    Raises:
        RunDamaged: no rank of a launch made a step that can be read.
    """
    points = [_point_of(group) for group in groups]
    steps = any(point.unit == Unit.STEPS for point in points)
    by_size: dict[int, list[Point]] = {}
    for point in points:
        by_size.setdefault(point.ranks, []).append(point.in_steps() if steps else point)
    return [_repeated(by_size[size]) for size in sorted(by_size)]


def _repeated(points: list[Point]) -> Point:
    if len(points) == 1:
        return points[0]
    ordered = sorted(points, key=lambda point: point.samples_per_s)
    middle = ordered[len(ordered) // 2]
    low, high = (ordered[0].low or 0.0), (ordered[-1].high or 0.0)
    notes = tuple(dict.fromkeys(note for point in points for note in point.notes))
    stood = max(point.without_cpu for point in points)
    return replace(
        middle,
        samples_per_s=statistics.median(point.samples_per_s for point in ordered),
        low=low,
        high=high,
        notes=(f"median of {len(points)} measurements", *notes),
        without_cpu=stood,
    )


def _crowded(runs: Sequence[Run]) -> list[str]:
    """Say that ranks share CPUs, or would, because there are fewer of them; not where a GPU was seen."""
    machines = [
        (rank.manifest.machine, rank.manifest.place) for run in runs for rank in run.ranks.values()
    ]
    here = 1 + max(int(str(place.get("local_rank", 0))) for _, place in machines)
    cpus = float(str(machines[0][0].get("effective_cpus") or 2 * here))
    if 2 * here <= cpus or any("gpus" in machine for machine, _ in machines):
        return []
    if here <= cpus:
        hosts = -(-max(len(run.ranks) for run in runs) // here)
        return [f"predictions for more than {counted(int(cpus * hosts))} suppose a CPU for each"]
    return [
        f"{counted(here)} shared {cpus:g} CPUs: the result holds for this machine, not for one "
        f"with more CPUs"
    ]


def _point(size: int, training: int, paces: list[_Pace], notes: list[str]) -> Point:
    """Add up the ranks' own throughputs, as in a report.

    Args:
        size: number of ranks.
        training: how many ranks made steps, those that are missing among them.
        paces: of those that trained.
        notes: for the reader.
    """
    paces = [pace for pace in paces if pace.step_s > 0]
    if not paces:
        raise RunDamaged(
            f"the steps of a run of {counted(size)} take no time at all: its records were changed"
        )
    error = float(np.median([pace.error_s / pace.step_s for pace in paces]))
    batch = (
        float(np.mean([pace.batch for pace in paces])) if all(pace.batch for pace in paces) else 0.0
    )
    fewest, most = min(pace.steps for pace in paces), max(pace.steps for pace in paces)
    stood = max(
        (pace.runqueue_s / pace.step_s for pace in paces if pace.runqueue_s is not None),
        default=0.0,
    )
    if stood > DISTURBED:
        notes.append(
            f"a main thread waited for a CPU in {share(stood)} of its step time: other programs "
            f"or too few CPUs slowed the measurement"
        )
    if fewest < _MIN_CERTAIN_STEPS:
        notes.append(f"only {fewest} steps")
    if fewest < most:
        notes.append(f"ranks recorded different numbers of steps: {fewest} to {most}")
    # no DataLoader: tensors, or a loader of the user's own
    unit, batch = (Unit.SAMPLES, batch) if batch else (Unit.STEPS, 1.0)
    rate = (
        sum((pace.batch if unit == Unit.SAMPLES else 1.0) / pace.step_s for pace in paces)
        * training
        / len(paces)
    )
    return Point(
        size,
        rate,
        rate / (1 + error),
        rate / (1 - min(error, 0.9)),
        batch,
        tuple(notes),
        unit,
        stood,
    )


def _world_size(runs: Sequence[Run]) -> int:
    """Return the number of ranks as the launcher said it."""
    return max(
        int(str(rank.manifest.place.get("world_size", 1)))
        for run in runs
        for rank in run.ranks.values()
    )


def launches(runs: Sequence[Run]) -> list[list[Run]]:
    """Put together folders that hold different ranks of one launch, one per node.

    Whole runs stay alone. All are in order of their size.
    """
    groups: list[list[Run]] = []
    for run in runs:
        size, ranks = _world_size([run]), set(run.ranks)
        for group in groups:
            taken = set().union(*(set(other.ranks) for other in group))
            if (
                len(ranks) < size == _world_size(group) > len(taken)
                and not ranks & taken
                and _command(run) == _command(group[0])
            ):
                group.append(run)
                break
        else:
            groups.append([run])
    return sorted(groups, key=_world_size)


def _command(run: Run) -> list[str]:
    """Return what was run."""
    return next(iter(run.ranks.values())).manifest.command


def basis_of(launches: Sequence[Sequence[Run]]) -> ScalingBasis:
    """Read the anatomy of the smallest launch, and the link of the largest.

    Points and kind are filled in by ``study``.

    Args:
        launches: in order of their number of ranks.
    """
    smallest, largest = launches[0], launches[-1]
    if _world_size(largest) < 2:
        return ScalingBasis(
            (), "unknown", why="needs a run of two ranks or more, to see collectives"
        )
    lowest = min(
        (rank for run in smallest for rank in run.ranks.values()), key=lambda rank: rank.number
    )
    alone = readable_collectives(lowest)
    if alone is None or not len(alone.table):
        return ScalingBasis(
            (),
            "unknown",
            why=f"no collectives were recorded in {lowest.folder}: wrap the model in DDP on a "
            f"single rank too",
        )
    pace = _pace_of(lowest)
    anatomy = step_profile(alone, pace.step_s) if pace else None
    if anatomy is None:
        return ScalingBasis((), "unknown", why=f"no backward was recorded in {lowest.folder}")
    if not anatomy.buckets:
        return ScalingBasis(
            (),
            "unknown",
            why=f"no collective overlaps the backward pass in {lowest.folder}, so there are no "
            f"buckets to replay",
        )
    together = [
        others
        for run in largest
        for _, rank in sorted(run.ranks.items())
        if (others := readable_collectives(rank)) is not None
    ]
    link = ring_between(together)
    if link is None:
        return ScalingBasis(
            (),
            "unknown",
            why=f"the ranks of {', '.join(masks.place(run.path) for run in largest)} have no "
            f"collectives in common",
        )
    return ScalingBasis((), "unknown", anatomy, link, "")


def why_incomparable(launches: Sequence[Sequence[Run]], points: Sequence[Point]) -> str:
    """Say why these launches show no scaling, and what to change.

    Empty if they do, or if that is unknown.

    Args:
        launches: in order of their number of ranks.
        points: what they measured.
    """
    alone = _dataset_samples(launches[0])
    for launch in launches:
        size, ranks = _world_size(launch), _ranks_of(launch)
        if size < 2:
            continue
        if idle := [number for number, steps in sorted(_trained(ranks).items()) if not steps]:
            return _idle(size, idle, [number for number in ranks if number not in idle])
        whole = (
            len(launches) > 1
            and launch is not launches[0]
            and 0 < alone == _dataset_samples(launch)
        )
        if ranks and all(_trains_apart(rank) for rank in list(ranks.values())[:_MAX_NAMED]):
            return _apart(size, alone if whole else 0)
        if whole:
            return _whole(size, alone, _world_size(launches[0]), points)
    return ""


def _ranks_of(launch: Sequence[Run]) -> dict[int, Rank]:
    """Return its ranks by their numbers."""
    return {number: rank for run in launch for number, rank in sorted(run.ranks.items())}


def _trained(ranks: dict[int, Rank]) -> dict[int, bool]:
    """Tell whether each rank made steps.

    Without those that did not end by themselves, or cannot be read.
    """
    trained = {}
    for number, rank in ranks.items():
        try:
            trained[number] = bool(len(steps_and_collectives(rank).steps))
        except FeedlineError:
            continue
    return {
        number: steps
        for number, steps in trained.items()
        if steps or ranks[number].manifest.state == "finished"
    }


def _trains_apart(rank: Rank) -> bool:
    """Tell whether the rank is known to exchange no gradients."""
    try:
        return exchanges_gradients(steps_and_collectives(rank), rank.manifest) is False
    except FeedlineError:
        return False


def _dataset_samples(launch: Sequence[Run]) -> int:
    """Return how many samples each rank draws per epoch, where that is its whole dataset.

    0: it is not, or not alike on all ranks.
    """
    drawn = {_whole_dataset(rank) for rank in list(_ranks_of(launch).values())[:_MAX_NAMED]}
    return drawn.pop() if len(drawn) == 1 else 0


def _whole_dataset(rank: Rank) -> int:
    """Return samples of the one dataset that a rank trains on, if its sampler draws all of it.

    Else 0.
    """
    try:
        loaders = training_loaders(rank.main)
    except FeedlineError:
        return 0
    samplers = rank.manifest.training.get("samplers")
    trains: list[dict[str, Any]] = (
        [sampler for sampler in samplers if sampler.get("loader") in loaders]
        if isinstance(samplers, list)
        else []
    )
    of = {
        int(sampler["of"])
        if sampler.get("of")
        and sampler.get("samples", 0) >= sampler["of"]
        and not _divides(sampler)
        else 0
        for sampler in trains
    }
    return of.pop() if len(of) == 1 else 0


def _divides(sampler: dict[str, Any]) -> bool:
    return "Distributed" in str(sampler.get("kind"))


def _idle(size: int, idle: Sequence[int], others: Sequence[int]) -> str:
    return (
        f"Of {counted(size)}, only {name_ranks(others)} trained; {name_ranks(idle)} made no step, "
        f"so this is no scaling. "
        "Let every rank run the training loop."
    )


def _apart(size: int, samples: int) -> str:
    also = f", and each drew all {count(samples)} samples" if samples else ""
    fix = f"{_WRAP}, and {_DIVIDE}." if samples else f"{_WRAP}."
    return (
        f"The {size} ranks did not train together{also}, so this is no scaling. No collective "
        f"averaged gradients in their steps: each "
        f"trained a model of its own. {fix}"
    )


def _whole(size: int, samples: int, base: int, points: Sequence[Point]) -> str:
    rates = ",".join(f"{point.ranks}={point.samples_per_s:.4g}" for point in points)
    return (
        f"Each of the {size} ranks draws all {count(samples)} samples per epoch, as with "
        f"{counted(base)}, so more ranks do not shorten an "
        f"epoch. {_DIVIDE[:1].upper()}{_DIVIDE[1:]}. If each rank has a dataset of its own, "
        f"compare the rates: "
        f"`feedline scale --throughput {rates}`."
    )
