"""What makes launches incomparable: ranks that do not train together, or that share no work. Their efficiency is undefined."""

from collections.abc import Sequence
from typing import Any

from feedline.analysis.formatting import count
from feedline.analysis.measure.boundaries import training_loaders
from feedline.analysis.ranks.exchange import exchanges
from feedline.analysis.ranks.read_collectives import steps_and_collectives
from feedline.analysis.scaling.conclusion import counted
from feedline.analysis.scaling.efficiency import Point
from feedline.analysis.scaling.measured import world_size
from feedline.profiler.errors import FeedlineError
from feedline.profiler.store.run_folder import Rank, Run, name_ranks

#: Ranks of a launch that are looked at: more run the same program.
_MOST = 8
_WRAP = "Wrap the model in DistributedDataParallel or fully_shard"
_DIVIDE = "give each rank its part of the data (DistributedSampler)"


def refusal(launches: Sequence[Sequence[Run]], points: Sequence[Point]) -> str:
    """Why these launches show no scaling, and what to change, in sentences; empty if they do, or if that is unknown.

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
        whole = len(launches) > 1 and launch is not launches[0] and 0 < alone == _dataset_samples(launch)
        if ranks and all(apart(rank) for rank in list(ranks.values())[:_MOST]):
            return _apart(size, alone if whole else 0)
        if whole:
            return _whole(size, alone, world_size(launches[0]), points)
    return ""


def _ranks_of(launch: Sequence[Run]) -> dict[int, Rank]:
    """Its ranks by their numbers."""
    return {number: rank for run in launch for number, rank in sorted(run.ranks.items())}


def _trained(ranks: dict[int, Rank]) -> dict[int, bool]:
    """Rank -> whether it made steps; without those that did not end by themselves, or cannot be read."""
    found = {}
    for number, rank in ranks.items():
        try:
            found[number] = bool(len(steps_and_collectives(rank).steps))
        except FeedlineError:
            continue
    return {number: steps for number, steps in found.items() if steps or ranks[number].manifest.state == "finished"}


def apart(rank: Rank) -> bool:
    """Whether the rank is known to exchange no gradients."""
    try:
        return exchanges(steps_and_collectives(rank), rank.manifest) is False
    except FeedlineError:
        return False


def _dataset_samples(launch: Sequence[Run]) -> int:
    """Samples that each rank draws per epoch, where that is its whole dataset, alike on all ranks; else 0."""
    drawn = {_whole_dataset(rank) for rank in list(_ranks_of(launch).values())[:_MOST]}
    return drawn.pop() if len(drawn) == 1 else 0


def _whole_dataset(rank: Rank) -> int:
    """Samples of the one dataset that a rank trains on, if its sampler draws all of it; else 0."""
    try:
        loaders = training_loaders(rank.main)
    except FeedlineError:
        return 0
    samplers = rank.manifest.training.get("samplers")
    trains: list[dict[str, Any]] = [one for one in samplers if one.get("loader") in loaders] if isinstance(samplers, list) else []
    of = {int(one["of"]) if one.get("of") and one.get("samples", 0) >= one["of"] and not _divides(one) else 0 for one in trains}
    return of.pop() if len(of) == 1 else 0


def _divides(sampler: dict[str, Any]) -> bool:
    return "Distributed" in str(sampler.get("kind"))


def _idle(size: int, idle: Sequence[int], others: Sequence[int]) -> str:
    return (
        f"Of {counted(size)}, only {name_ranks(others)} trained; {name_ranks(idle)} made no step, so this is no scaling. "
        "Let every rank run the training loop."
    )


def _apart(size: int, samples: int) -> str:
    also = f", and each drew all {count(samples)} samples" if samples else ""
    fix = f"{_WRAP}, and {_DIVIDE}." if samples else f"{_WRAP}."
    return (
        f"The {size} ranks did not train together{also}, so this is no scaling. No collective averaged gradients in their steps: each "
        f"trained a model of its own. {fix}"
    )


def _whole(size: int, samples: int, base: int, points: Sequence[Point]) -> str:
    rates = ",".join(f"{point.ranks}={point.samples_per_s:.4g}" for point in points)
    return (
        f"Each of the {size} ranks draws all {count(samples)} samples per epoch, as with {counted(base)}, so more ranks do not shorten an "
        f"epoch. {_DIVIDE[:1].upper()}{_DIVIDE[1:]}. If each rank has a dataset of its own, compare the rates: "
        f"`feedline scale --throughput {rates}`."
    )
