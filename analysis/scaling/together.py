"""What makes launches incomparable.

Ranks that do not train together, or that share no work, have no efficiency.
"""

from collections.abc import Sequence
from typing import Any

from feedline.analysis.measure.boundaries import training_loaders
from feedline.analysis.ranks.partition import exchanges_gradients
from feedline.analysis.ranks.read_collectives import steps_and_collectives
from feedline.analysis.scaling.efficiency import Point
from feedline.analysis.scaling.launch_points import world_size
from feedline.analysis.scaling.study import counted
from feedline.analysis.text.formatting import count
from feedline.profiler.errors import FeedlineError
from feedline.profiler.message import name_ranks
from feedline.profiler.store.run_folder import Rank, Run

#: Ranks of a launch that are looked at: more run the same program.
_MAX_NAMED = 8
_WRAP = "Wrap the model in DistributedDataParallel or fully_shard"
_DIVIDE = "give each rank its part of the data (DistributedSampler)"


def why_incomparable(launches: Sequence[Sequence[Run]], points: Sequence[Point]) -> str:
    """Say why these launches show no scaling, and what to change.

    Empty if they do, or if that is unknown.

    Args:
        launches: in order of their number of ranks.
        points: what they measured.
    """
    alone = _dataset_samples(launches[0])
    for launch in launches:
        size, ranks = world_size(launch), _ranks_of(launch)
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
            return _whole(size, alone, world_size(launches[0]), points)
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
