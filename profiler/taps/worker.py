"""Records a loader's worker: its start, waiting for work, making batches (fetch.py), pickling them.

torch starts a worker with ``target=_worker_loop``. We put a ``WorkerEntry`` there: an object of
this importable module, so that spawn and forkserver can pickle it. (A patched function would be
pickled by its name and come out unpatched on the other side, silently.)
"""

import gc
import importlib
import inspect
import multiprocessing.queues
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from feedline.profiler import clock
from feedline.profiler.errors import leave_out_us
from feedline.profiler.events import Stage, batch_key
from feedline.profiler.fail_open import fail_open, reraise_of_handler
from feedline.profiler.record.recorder import Span, recorder
from feedline.profiler.stacks.targets import SampledProcess
from feedline.profiler.store.layout import worker_segment
from feedline.profiler.store.segment import CAPACITY_BYTES, Segment, window_of
from feedline.profiler.taps.garbage import GarbageTap
from feedline.profiler.taps.patch import Patches

_LIBRARIES = ("torch", "torchdata")
_ALL_WORKERS_BYTES = 4 * CAPACITY_BYTES  # the workers of one loader share this much room


@dataclass
class WorkerEntry:
    """Called in the new process instead of torch's worker loop, to which it passes its arguments.

    Attributes:
        module, function: where the original loop is. The library's own is looked up in the child;
            one that the program has put there is pickled.
        folder: the rank's folder.
        loader: number of the loader.
        epoch: the epoch that the worker begins with.
        workers: how many workers the loader has.
        every: see Recorder.
        born_ns: when the parent began to start workers.
        salt: see Recorder; it is written nowhere.
        stacks: whether its stacks are sampled.
    """

    module: str
    function: str
    folder: str
    loader: int
    epoch: int
    workers: int
    every: int | None
    born_ns: int
    salt: bytes
    _original: Callable[..., None] | None = None
    stacks: bool = False

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | ({"_original": None} if _is_of_a_library(self._original) else {})

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Attach in a spawned worker, just before the dataset is unpickled.

        It then gets the replaced functions.
        """
        self.__dict__.update(state)
        try:
            from feedline.profiler.taps import operations

            operations.attach(lambda *_: None)
        except Exception:  # the worker's samples are not timed separately
            reraise_of_handler()

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        loop = self._original or getattr(importlib.import_module(self.module), self.function)
        patches = Patches()
        try:
            self._begin(loop, args, kwargs, patches)
        except Exception:
            reraise_of_handler()
            # fail open: this worker is not recorded; the reader misses its segment and says so
            recorder.close()
            patches.undo()
        loop(*args, **kwargs)

    def _begin(self, loop: Callable[..., None], args: Any, kwargs: Any, patches: Patches) -> None:
        given = inspect.signature(loop).bind(*args, **kwargs).arguments
        worker = int(given["worker_id"])
        header = {"role": "worker", "loader": self.loader, "worker": worker, "pid": os.getpid()}
        segment = Segment(
            worker_segment(Path(self.folder), self.loader, worker),
            header,
            _ALL_WORKERS_BYTES // self.workers,
        )
        recorder.open_worker(segment, self.loader, self.every, self.salt)
        segment.add(
            Stage.START,
            self.born_ns,
            clock.wall_ns() - self.born_ns,
            time.process_time_ns(),
            extra=os.getpid(),
            source=self.loader,
        )
        sampled = None
        if self.stacks:
            sampled = SampledProcess(Path(self.folder), segment.path.stem)
            sampled.tick()
        _attach_taps(patches)
        get = _watched_get(given["index_queue"].get, segment, self.epoch, sampled)
        patches.set(given["index_queue"], "get", get)
        queues: Any = multiprocessing.queues
        batches: set[int] = set()  # by id, from when they are put until they are pickled
        patches.set(given["data_queue"], "put", _watched_put(given["data_queue"].put, batches))
        patches.set(queues, "_ForkingPickler", _watched_pickler(queues._ForkingPickler, batches))
        module: Any = importlib.import_module(self.module)
        if _is_of_a_library(loop):  # torchdata has it beside its loop
            module = sys.modules.get(loop.__module__, module)
        patches.set(module, "ExceptionWrapper", _without_our_frames(module.ExceptionWrapper))


def _is_of_a_library(loop: object) -> bool:
    """Return whether a worker loop is torch's or torchdata's own."""
    return inspect.isfunction(loop) and loop.__module__.partition(".")[0] in _LIBRARIES


def _attach_taps(patches: Patches) -> None:
    """Attach the taps of a worker.

    After a fork they are already attached.
    """
    from feedline.profiler.taps import fetch, operations

    fetch.attach(patches)
    _attach_in_worker(patches)
    operations.attach(lambda *_: None)


def _watched_get(
    original: Callable[..., Any], segment: Segment, epoch: int, sampled: SampledProcess | None
) -> Callable[..., Any]:
    """Wrap ``index_queue.get`` of a worker.

    It records the time without work, and the number of the next batch.
    """
    from torch.utils.data._utils.worker import _ResumeIteration

    idle_since = 0

    def get(*args: Any, **kwargs: Any) -> Any:
        nonlocal epoch, idle_since
        idle_since = idle_since or clock.wall_ns()
        if sampled is not None:
            sampled.tick()
        # raises queue.Empty every few seconds: the waiting continues
        task = original(*args, **kwargs)
        if isinstance(task, _ResumeIteration):
            epoch += 1
        elif isinstance(task, tuple):
            recorder.batch = batch_key(epoch, task[0])
            segment.window = window_of(epoch, task[0])
            segment.add(
                Stage.IDLE,
                idle_since,
                clock.wall_ns() - idle_since,
                number=recorder.batch,
                source=recorder.loader,
            )
        idle_since = 0
        return task

    return get


def _without_our_frames(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the function that turns a worker's exception into text for the main process."""

    def wrapper(exc_info: Any = None, where: str = "in background") -> Any:
        kind, error, trace = exc_info or sys.exc_info()
        if error is not None:
            with fail_open:  # errors of all kinds
                leave_out_us(error)
                trace = error.__traceback__
        return original((kind, error, trace), where)

    return wrapper


def _watched_put(original: Callable[..., Any], batches: set[int]) -> Callable[..., Any]:
    """Wrap ``data_queue.put`` of a worker: the program may have queues of its own."""

    def put(item: Any, *args: Any, **kwargs: Any) -> Any:
        batches.add(id(item))
        return original(item, *args, **kwargs)

    return put


def _watched_pickler(original: Any, batches: set[int]) -> Any:
    """Return a proxy for ForkingPickler in the module from which a queue's feeder thread takes it.

    Args:
        original: the pickler.
        batches: items to record, by id; they are taken out.
    """

    class Pickler(original):
        @classmethod
        def dumps(cls, item: Any, protocol: int | None = None) -> Any:
            segment = recorder.segment
            is_batch = id(item) in batches
            batches.discard(id(item))
            if (
                segment is None
                or not is_batch
                or not (isinstance(item, tuple) and item and isinstance(item[0], int))
            ):
                return original.dumps(item, protocol)
            with Span(
                segment, Stage.PICKLE, recorder.loader, batch_key(recorder.batch >> 32, item[0])
            ) as span:
                pickled = original.dumps(item, protocol)
                span.nbytes = len(pickled)
            return pickled

    return Pickler


def _attach_in_worker(patches: Patches) -> None:
    """Attach in a loader's worker, unless the process that was forked had the tap."""
    if not any(isinstance(getattr(one, "__self__", None), GarbageTap) for one in gc.callbacks):
        GarbageTap().attach(patches)
