"""From recorded launches to what predictions are made from."""

from collections.abc import Sequence

from feedline.analysis.scaling.measured import pace_of, world_size
from feedline.analysis.scaling.predict import Basis
from feedline.analysis.scaling.recorded import anatomy_of, link_of
from feedline.analysis.traces.collectives import Collectives
from feedline.profiler import masks
from feedline.profiler.errors import FeedlineError
from feedline.profiler.store.run_folder import Rank, Run

#: Ranks whose collectives are compared for the bandwidth of the link: more tell the same.
_MOST = 8


def basis_of(launches: Sequence[Sequence[Run]]) -> Basis:
    """The anatomy of the smallest launch, and the link of the largest. Points and kind are filled in by ``study``.

    Args:
        launches: in order of their number of ranks.
    """
    smallest, largest = launches[0], launches[-1]
    if world_size(largest) < 2:
        return Basis((), "unknown", why="needs a run of two ranks or more, to see collectives")
    lowest = min((rank for run in smallest for rank in run.ranks.values()), key=lambda rank: rank.number)
    one = collectives(lowest)
    if one is None or not len(one.table):
        return Basis((), "unknown", why=f"no collectives were recorded in {lowest.folder}: wrap the model in DDP on a single rank too")
    pace = pace_of(lowest)
    anatomy = anatomy_of(one, pace.step_s) if pace else None
    if anatomy is None:
        return Basis((), "unknown", why=f"no backward was recorded in {lowest.folder}")
    if not anatomy.buckets:
        return Basis((), "unknown", why=f"no collective overlaps the backward pass in {lowest.folder}, so there are no buckets to replay")
    together = [found for run in largest for _, rank in sorted(run.ranks.items())[:_MOST] if (found := collectives(rank)) is not None]
    link = link_of(together)
    if link is None:
        return Basis((), "unknown", why=f"the ranks of {', '.join(masks.place(run.path) for run in largest)} have no collectives in common")
    return Basis((), "unknown", anatomy, link, "")


def collectives(rank: Rank) -> Collectives | None:
    """None: none were recorded, or they cannot be read."""
    from feedline.analysis.ranks.read_collectives import collectives_of

    try:
        return collectives_of(rank)
    except FeedlineError:
        return None
