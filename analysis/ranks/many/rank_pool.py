"""Runs independent pieces of work.

They run in a pool of processes on this machine, or on the workers of a Dask cluster.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from feedline.profiler import pool
from feedline.profiler.errors import MissingDependency, WorkersLost

_T = TypeVar("_T")

#: Called with what is being done, how many parts are done, and of how many.
Tell = Callable[[str, int, int], None]


def silent(what: str, done: int, of: int) -> None:
    """Tell nothing."""


@dataclass(frozen=True)
class RankPool:
    """What runs the work, and how an argument that all of it needs gets there.

    It gets there once per worker, where that is possible.

    Attributes:
        stop: ends workers that were started for this, so that they write nothing more.
    """

    executor: Executor
    share: Callable[[Any], Any]
    stop: Callable[[], None] = lambda: None


class _AtOnce(Executor):
    """Works in this process, when asked."""

    def submit(self, work: Callable[..., _T], /, *args: Any, **kwargs: Any) -> "Future[_T]":
        future: Future[_T] = Future()
        try:
            future.set_result(work(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


@contextmanager
def here() -> Iterator[RankPool]:
    """Use this process alone.

    For little work, for which starting others takes longer than it does.
    """
    yield RankPool(_AtOnce(), lambda value: value)


@contextmanager
def local(processes: int | None = None) -> Iterator[RankPool]:
    """Start a pool of processes on this machine, by default as many as there are CPUs."""
    from feedline.profiler.samplers.cgroup import effective_cpus

    count = processes or max(1, min(int(effective_cpus()), os.cpu_count() or 1))
    with pool.pool(count) as executor:
        yield RankPool(executor, lambda value: value, lambda: pool.stop(executor))


@contextmanager
def dask(address: str, wait_s: float = 20.0) -> Iterator[RankPool]:
    """Use the workers of a running cluster.

    They need feedline and the run folders under the same paths.

    Args:
        address: of its scheduler.
        wait_s: for the scheduler to answer.

    Raises:
        MissingDependency: dask.distributed is not installed. WorkersLost: no scheduler responds
            there.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise MissingDependency(
            "--dask needs dask.distributed: pip install dask distributed"
        ) from error
    try:
        client = Client(address, timeout=wait_s, set_as_default=False)
    except (OSError, ValueError) as error:
        raise WorkersLost(
            f"no Dask scheduler responds at {address} ({error or type(error).__name__}): check "
            f"the address"
        ) from error
    try:
        yield RankPool(
            client.get_executor(pure=False), lambda value: client.scatter(value, broadcast=True)
        )
    finally:
        client.close()


def chunked(todo: Sequence[_T], size: int) -> list[Sequence[_T]]:
    """Divide what is to be done into parts of at most ``size``."""
    return [todo[at : at + size] for at in range(0, len(todo), size)]


def each(
    pool: RankPool,
    work: Callable[..., _T],
    parts: Sequence[Sequence[Any]],
    args: tuple[Any, ...],
    what: str,
    tell: Tell = silent,
) -> Iterable[_T]:
    """Yield ``work(part, *args)`` of each part, in the order in which they are done.

    Args:
        pool: of workers.
        work: a function of a module, so that workers can find it.
        parts: what is divided among them.
        args: given with each part.
        what: is being done, for ``tell``.
        tell: called with what is done.

    Raises:
        WorkersLost: they are gone.
    """
    waiting: dict[Future[_T], int] = {
        pool.executor.submit(work, part, *args): len(part) for part in parts
    }
    done, total = 0, sum(map(len, parts))
    try:
        for future in as_completed(waiting):
            yield future.result()
            done += waiting[future]
            tell(what, done, total)
    except (OSError, BrokenExecutor) as error:  # Dask's errors of communication are OSErrors
        raise WorkersLost(f"{what}: the workers are lost ({error})") from error
    except BaseException:
        pool.stop()
        raise
    finally:
        for future in waiting:
            future.cancel()
