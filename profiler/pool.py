"""Helper processes of a command.

Ctrl-C, which a terminal sends to a whole process group, reaches only the command, which ends them.
"""

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import forkserver, get_context, resource_tracker
from typing import Any, TypeVar

from feedline.profiler.deferred import deferred

_T = TypeVar("_T")


@contextmanager
def sheltered() -> Iterator[None]:
    """Shelter processes started in the block, and their children, from SIGINT.

    The signal is blocked, not ignored, so that it is blocked from their first moment. In this
    process it acts at the end of the block: an interrupted start could leave a process without
    handle.
    """
    resource_tracker.ensure_running()  # starting it later would unblock SIGINT
    with deferred():
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Pool(ProcessPoolExecutor):
    """An executor that starts its processes as work arrives."""

    def submit(self, work: Callable[..., _T], /, *args: Any, **kwargs: Any) -> "Future[_T]":
        with sheltered():
            return super().submit(work, *args, **kwargs)


@contextmanager
def pool(
    count: int, initializer: Callable[..., object] | None = None, initargs: tuple[Any, ...] = ()
) -> Iterator[ProcessPoolExecutor]:
    """Return a pool of ``count`` processes; they are ended at once if the block raises.

    Args:
        count: of processes.
        initializer: called in every process before its first work.
        initargs: its arguments.
    """
    with sheltered():
        forkserver.ensure_running()
    executor = _Pool(
        count, mp_context=get_context("forkserver"), initializer=initializer, initargs=initargs
    )
    try:
        yield executor
    except BaseException:
        stop(executor)
        raise
    finally:
        executor.shutdown(cancel_futures=True)


def stop(executor: ProcessPoolExecutor) -> None:
    """End its processes, whatever they are doing."""
    # Python 3.14 has terminate_workers()
    for process in list((executor._processes or {}).values()):
        process.terminate()
