"""Both looks at all ranks, on whatever runs functions: this process, a pool of processes, or the workers of a Dask cluster."""

from collections.abc import Sequence

from feedline.analysis.comm.collectives import Collectives
from feedline.analysis.many.crew import Crew, Tell, chunked, each
from feedline.analysis.many.passes import Load, Spent, Survey, spend, survey
from feedline.analysis.many.result import Many, put_together
from feedline.analysis.many.sources import sources
from feedline.profiler.errors import RunDamaged
from feedline.profiler.store.read import Rank

#: Ranks that a worker looks at before it hands over what it has: more take longer to show progress, fewer send the envelope more often.
CHUNK = 8


def of_rank(rank: Rank) -> Collectives | None:
    """A rank's collectives as feedline recorded them; None: there are none.

    Raises:
        RunDamaged: its records cannot be read.
    """
    from feedline.analysis.comm.of_run import collectives_of

    return collectives_of(rank)


def reduce_ranks(urls: Sequence[str], crew: Crew, load: Load = of_rank, tell: Tell = lambda what, done, of: None) -> Many:
    """Read every rank twice and put together what they cost each other. Never holds more than a few ranks at once.

    Args:
        urls: run folders, of one run: paths or addresses.
        load: reads a rank's collectives; a function of a module, so that workers can find it.
        tell: called with what is being done, how many ranks are done, and of how many.

    Raises:
        RunNotFound, RunDamaged, MissingDependency: see ``sources``; RunDamaged also when no rank can be read.
        WorkersLost: the workers are gone.
    """
    there = sources(urls)
    everybody = Survey()
    for part in each(crew, survey, chunked(there.found, CHUNK), (load,), "reading ranks", tell):
        everybody = everybody.merge(part)
    if not everybody.seen:
        first = min(everybody.unread)
        raise RunDamaged(f"no rank of {', '.join(urls)} can be read; rank {first}: {everybody.unread[first]}")
    bound = bound_ns(everybody)
    readable = [source for source in there.found if source.rank in everybody.seen]
    shared = crew.share(everybody)
    spent: list[Spent] = []
    for found in each(crew, spend, chunked(readable, CHUNK), (shared, load, bound), "splitting steps", tell):
        spent += found
    return put_together(everybody, sorted(spent, key=lambda one: one.rank), there.notes, bound)


def bound_ns(everybody: Survey) -> float:
    """Differences between ranks smaller than this say nothing: the sum of the two worst clocks' errors. Alone, there is none."""
    bounds = sorted(seen.clock_bound_ns for seen in everybody.seen.values())
    return sum(bounds[-2:]) if len(bounds) > 1 else 0.0
