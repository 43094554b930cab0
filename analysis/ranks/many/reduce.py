"""Both passes over all ranks, in this process, a pool of processes, or the workers of a Dask cluster."""

from collections.abc import Sequence
from dataclasses import replace
from math import inf, isfinite

from feedline.analysis.formatting import share
from feedline.analysis.ranks.clocks import OUTLIERS
from feedline.analysis.ranks.many.passes import Load, Spent, Survey, foreign, spend, survey
from feedline.analysis.ranks.many.rank_pool import RankPool, Tell, chunked, each, silent
from feedline.analysis.ranks.many.result import Many, put_together
from feedline.analysis.ranks.many.sources import Source, sources
from feedline.analysis.traces.collectives import Collectives
from feedline.profiler.errors import RunDamaged
from feedline.profiler.store.run_folder import Rank

#: Ranks per task: with more, progress shows later; with fewer, the envelope is sent more often.
_CHUNK = 8


def of_rank(rank: Rank) -> Collectives | None:
    """A rank's steps and collectives as feedline recorded them; None: there are neither.

    Raises:
        RunDamaged: its records cannot be read.
    """
    from feedline.analysis.ranks.read_collectives import steps_and_collectives

    found = steps_and_collectives(rank)
    return found if len(found.steps) or len(found.table) else None


def reduce_ranks(urls: Sequence[str], pool: RankPool, load: Load = of_rank, tell: Tell = silent) -> Many:
    """Read every rank twice and add up how long they wait for each other. Never holds more than a few ranks at once.

    Args:
        urls: run folders, of one run: paths or addresses.
        load: reads a rank's collectives; a function of a module, so that workers can find it.
        tell: called with what is being done, how many ranks are done, and of how many.

    Raises:
        RunNotFound, RunDamaged, MissingDependency: see ``sources``; RunDamaged also when no rank can be read.
        WorkersLost: the workers are gone.
    """
    there = sources(urls)
    everybody = _surveyed(there.found, pool, load, tell)
    if strange := foreign(everybody.seen):  # minimum and maximum forget what they are of: the others are read again
        kept = _surveyed([source for source in there.found if source.rank not in strange], pool, load, tell)
        everybody = replace(kept, unread={**kept.unread, **strange})
    if not everybody.seen:
        first = min(everybody.unread)
        raise RunDamaged(f"no rank of {', '.join(urls)} can be read; rank {first}: {everybody.unread[first]}")
    bound, why = bound_ns(everybody)
    readable = [source for source in there.found if source.rank in everybody.seen]
    shared = pool.share(everybody)
    spent: list[Spent] = []
    for costs in each(pool, spend, chunked(readable, _CHUNK), (shared, load, bound), "splitting steps", tell):
        spent += costs
    return put_together(everybody, sorted(spent, key=lambda cost: cost.rank), [*there.notes, *why], bound)


def _surveyed(chosen: Sequence[Source], pool: RankPool, load: Load, tell: Tell) -> Survey:
    """The first pass over all of them."""
    everybody = Survey()
    for part in each(pool, survey, chunked(chosen, _CHUNK), (load,), "reading ranks", tell):
        everybody = everybody.merge(part)
    return everybody


def bound_ns(everybody: Survey) -> tuple[float, list[str]]:
    """Error of the clocks between ranks: the sum of the two largest; 0 for one rank.

    Returns:
        ns; inf where waiting cannot be separated from transfer, and why.
    """
    bounds = sorted(seen.clock_bound_ns for seen in everybody.seen.values())
    bound = sum(bounds[-2:]) if len(bounds) > 1 else 0.0
    if not isfinite(bound):
        if not everybody.envelope.groups:
            return bound, []
        return bound, ["the ranks' clocks were not compared: waiting counts as transfer"]
    early = everybody.envelope.contradicting(bound)
    if early > OUTLIERS:
        return inf, [
            f"ranks ended {share(early)} of their collectives before others had begun them: their clocks are wrong or their folders belong "
            "to two runs, so waiting counts as transfer"
        ]
    return bound, []
