"""Both looks at all ranks, on whatever runs functions: this process, a pool of processes, or the workers of a Dask cluster."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

from feedline.analysis.comm.collectives import Collectives
from feedline.analysis.many.passes import Load, Spent, Survey, spend, survey
from feedline.analysis.many.result import Many, put_together
from feedline.analysis.many.sources import Source, sources
from feedline.profiler.errors import MissingDependency, RunDamaged, WorkersLost
from feedline.profiler.store.read import Rank

#: Ranks that a worker looks at before it hands over what it has: more take longer to show progress, fewer send the envelope more often.
CHUNK = 8
Tell = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Crew:
    """Who does the work, and how something that all of them need gets there (once per worker, where that can be had)."""

    executor: Executor
    share: Callable[[Any], Any]


@contextmanager
def local(processes: int | None = None) -> Iterator[Crew]:
    """A pool of processes on this machine; of as many as there are CPUs by default."""
    from feedline.profiler.samplers.cgroup import effective_cpus

    count = processes or max(1, min(int(effective_cpus()), os.cpu_count() or 1))
    with ProcessPoolExecutor(count, mp_context=get_context("forkserver")) as pool:
        yield Crew(pool, lambda value: value)


@contextmanager
def dask(address: str, wait_s: float = 20.0) -> Iterator[Crew]:
    """The workers of a running cluster. They need feedline, and have to see the run folders under the same paths.

    Args:
        wait_s: for the scheduler to answer.

    Raises:
        MissingDependency: dask.distributed is not installed. WorkersLost: nobody answers at this address.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise MissingDependency("--dask needs dask.distributed: pip install 'feedline[cluster]'") from error
    try:
        client = Client(address, timeout=wait_s, set_as_default=False)
    except (OSError, ValueError) as error:
        raise WorkersLost(f"no Dask scheduler answers at {address} ({error or type(error).__name__}): check the address") from error
    try:
        yield Crew(client.get_executor(pure=False), lambda value: client.scatter(value, broadcast=True))
    finally:
        client.close()


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
    for part in _each(crew, survey, there.found, (load,), "reading ranks", tell):
        everybody = everybody.merge(part)
    if not everybody.seen:
        first = min(everybody.unread)
        raise RunDamaged(f"no rank of {', '.join(urls)} can be read; rank {first}: {everybody.unread[first]}")
    bound = bound_ns(everybody)
    readable = [source for source in there.found if source.rank in everybody.seen]
    shared = crew.share(everybody)
    spent: list[Spent] = []
    for found in _each(crew, spend, readable, (shared, load, bound), "splitting steps", tell):
        spent += found
    return put_together(everybody, sorted(spent, key=lambda one: one.rank), there.notes, bound)


def bound_ns(everybody: Survey) -> float:
    """Differences between ranks smaller than this say nothing: the sum of the two worst clocks' errors. Alone, there is none."""
    bounds = sorted(seen.clock_bound_ns for seen in everybody.seen.values())
    return sum(bounds[-2:]) if len(bounds) > 1 else 0.0


def _each(crew: Crew, work: Callable[..., Any], todo: list[Source], args: tuple[Any, ...], what: str, tell: Tell) -> Iterable[Any]:
    """Results of chunks, in the order in which they are done."""
    chunks = [todo[at : at + CHUNK] for at in range(0, len(todo), CHUNK)]
    waiting: dict[Future[Any], int] = {crew.executor.submit(work, chunk, *args): len(chunk) for chunk in chunks}
    done = 0
    try:
        for future in as_completed(waiting):
            yield future.result()
            done += waiting[future]
            tell(what, done, len(todo))
    except OSError as error:  # BrokenProcessPool is a RuntimeError; Dask's errors of communication are OSErrors
        raise WorkersLost(f"{what}: the workers are gone ({error})") from error
    finally:
        for future in waiting:
            future.cancel()
