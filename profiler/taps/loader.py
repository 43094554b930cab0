"""torch's DataLoader (and torchdata's, which is built alike) as the training's main thread sees it.

iter(loader)                     EPOCH
  next(iterator)                 NEXT, whose time in nothing else is waiting
    _next_index()                  SAMPLER
    _try_get_data()                ARRIVE
      queue.get()                    TRANSPORT: receiving and unpickling (in the pin thread when there is one)
    pin_memory()                   PIN (in its own thread when there are workers)
    fetcher.fetch()                FETCH, when there are no workers
"""

import functools
import importlib
import os
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from feedline.profiler import clock, masks
from feedline.profiler.events import UNMEASURED, Flag, Stage, batch_key
from feedline.profiler.fail_open import fail_open, reraise_of_handler
from feedline.profiler.record.recorder import Inside, Span, recorder
from feedline.profiler.store.segment import window_of
from feedline.profiler.taps.batch_contents import BatchContents, describe, may_hold_more, rows
from feedline.profiler.taps.loader_settings import Values, attributes, changed, settings
from feedline.profiler.taps.patch import Patches
from feedline.profiler.taps.recording_schedule import schedule
from feedline.profiler.taps.source_names import CallSites
from feedline.profiler.taps.worker import WorkerEntry


@dataclass(frozen=True)
class _LoaderLibrary:
    """Names of a loader's parts in one library."""

    module: str
    single: str
    multi: str
    base: str
    loader: str
    worker_module: (
        str  # the module whose ``_worker_loop`` the iterator looks up when it starts workers
    )


TORCH = _LoaderLibrary(
    "torch.utils.data.dataloader",
    "_SingleProcessDataLoaderIter",
    "_MultiProcessingDataLoaderIter",
    "_BaseDataLoaderIter",
    "DataLoader",
    "torch.utils.data._utils.worker",
)
TORCHDATA = _LoaderLibrary(
    "torchdata.stateful_dataloader.stateful_dataloader",
    "_StatefulSingleProcessDataLoaderIter",
    "_StatefulMultiProcessingDataLoaderIter",
    "_StatefulBaseDataLoaderIter",
    "StatefulDataLoader",
    "torchdata.stateful_dataloader.stateful_dataloader",
)

_MAX_LOADERS = 256  # that have a number of their own: each costs a place in the manifest
_LENGTHS = {"dataset_samples", "epoch_samples"}

_NewLoader = Callable[[str, dict[str, object]], int]  # kind, settings -> number of the loader
# number of the loader, settings that have become known
_MoreOfLoader = Callable[[int, dict[str, object]], None]


class LoaderTaps:
    """Attaches to the loaders of one library.

    Args:
        folder: the rank's folder, where workers put their segments.
        register: called once for each loader that is iterated.
        add: called where later passes show more of one.
    """

    def __init__(self, folder: Path, register: _NewLoader, add: _MoreOfLoader) -> None:
        self._folder = folder
        self._register = register
        self._add = add
        self._loaders: list[_LoaderHandle] = []
        self._sites = CallSites()
        self._salt = os.urandom(16)
        self._starting = threading.RLock()

    def attach(self, library: _LoaderLibrary, patches: Patches) -> None:
        """Patch the library's iterator classes.

        Raises:
            AttributeError, ImportError: this version is built differently.
        """
        module = importlib.import_module(library.module)
        single, multi, base = (
            getattr(module, name) for name in (library.single, library.multi, library.base)
        )
        loader = getattr(module, library.loader)
        patches.set(loader, "__init__", self._sites.watched(loader.__init__))
        patches.set(single, "__init__", self._watched_init(single.__init__, None))
        patches.set(multi, "__init__", self._watched_init(multi.__init__, library))
        patches.set(multi, "_reset", self._watched_reset(multi._reset))
        patches.set(multi, "_try_get_data", _watched_try_get_data(multi._try_get_data))
        patches.set(base, "__next__", watched_next(base.__next__, self._adopts))
        if library is TORCH:  # torchdata's calls it
            patches.set(base, "_next_index", _watched_next_index(base._next_index))

    def _next_epoch(self, loader: Any) -> tuple["_LoaderHandle", int]:
        """Return its handle, and the flags of the record of this pass."""
        known = next((known for known in self._loaders if known.loader() is loader), None)
        flags = 0 if known is not None else Flag.FIRST
        known = known or self._meet(loader)
        known.epoch += 1
        with fail_open:  # whether it changes stays unknown
            changes = known.begins(loader)
            if changes is not None:
                self._add(known.number, {"dataset_changes": changes})
        return known, flags

    def _meet(self, loader: Any) -> "_LoaderHandle":
        """Give a loader a number.

        One that replaces another (created again each epoch, with the same settings) keeps its
        number. Of very many, a new one shares that of another: of one that differs in lengths
        alone, if possible.
        """
        about = (type(loader).__name__, {**settings(loader), **self._sites.of(loader)})
        for known in self._loaders:
            if known.about == about and known.loader() is None and known.iterator() is None:
                known.loader = weakref.ref(loader)
                return known
        if len(self._loaders) >= _MAX_LOADERS:
            known = next(
                (known for known in reversed(self._loaders) if known.is_like(*about)),
                self._loaders[-1],
            )
            known.about, known.loader, known.dataset = about, weakref.ref(loader), None
            return known
        self._loaders.append(_LoaderHandle(self._register(*about), about, weakref.ref(loader)))
        return self._loaders[-1]

    def _watched_init(
        self, original: Callable[..., None], library: _LoaderLibrary | None
    ) -> Callable[..., None]:
        @functools.wraps(original)
        def __init__(iterator: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
            segment = recorder.resume()
            if segment is None:
                return original(iterator, loader, *args, **kwargs)
            known, flags = self._next_epoch(loader)
            own_collate = known.about[1].get("collate") != "default"
            iterator._feedline = state = IteratorState(
                known.number, known.epoch, own_collate=own_collate, of=known
            )
            known.iterator = weakref.ref(iterator)
            recorder.loader = state.loader
            segment.window = window_of(state.epoch, 0)
            if recorder.optimizers is not None:
                recorder.optimizers.pass_begins(segment)
            with Span(segment, Stage.EPOCH, state.loader, state.epoch, flags) as span:
                span.extra = workers = getattr(loader, "num_workers", 0)
                if library is None:
                    _watch_makers([(os.getpid(), threading.get_native_id())])
                    return original(iterator, loader, *args, **kwargs)
                with self._starting:
                    module = importlib.import_module(library.worker_module)
                    patches = Patches()
                    entry = WorkerEntry(
                        module.__name__,
                        "_worker_loop",
                        str(self._folder),
                        state.loader,
                        state.epoch,
                        workers,
                        recorder.every,
                        clock.wall_ns(),
                        self._salt,
                        module._worker_loop,
                        recorder.samples_stacks,
                    )
                    patches.set(module, "_worker_loop", entry)
                    recorder.starting = threading.get_ident()
                    try:
                        original(iterator, loader, *args, **kwargs)
                    finally:
                        recorder.starting = 0
                        patches.undo()
            _watch_workers(iterator, state.loader)
            with suppress(AttributeError):  # workers that are threads have another kind of queue
                _watch_queue(iterator._worker_result_queue, state)

        return __init__

    def _watched_reset(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def _reset(
            iterator: Any, loader: Any, first_iter: bool = False, *args: Any, **kwargs: Any
        ) -> None:
            segment = recorder.resume()
            if segment is None or first_iter or not hasattr(iterator, "_feedline"):
                return original(iterator, loader, first_iter, *args, **kwargs)
            state = iterator._feedline
            known, flags = self._next_epoch(loader)
            state.yielded = 0
            state.drawn.clear()
            state.joins(known, iterator)
            segment.window = window_of(state.epoch, 0)
            if recorder.optimizers is not None:
                recorder.optimizers.pass_begins(segment)
            with Span(segment, Stage.EPOCH, state.loader, state.epoch, flags) as span:
                span.extra = getattr(loader, "num_workers", 0)
                original(iterator, loader, first_iter, *args, **kwargs)

        return _reset

    def _adopts(self, iterator: Any, state: "IteratorState") -> bool:
        """Take over an iterator that lives on from an earlier recording, amid its pass.

        Returns whether it is recorded from now on.
        """
        segment = recorder.resume()
        if segment is None or state.of is None:
            return False
        with fail_open:  # it is not recorded
            known = self._again(state.of)
            known.epoch += 1
            state.joins(known, iterator)
            with Span(segment, Stage.EPOCH, known.number, known.epoch) as span:
                span.extra = iterator._num_workers
            return True
        return False

    def _again(self, before: "_LoaderHandle") -> "_LoaderHandle":
        """Return the handle of a loader, perhaps gone, that has one of an earlier recording."""
        loader = before.loader()
        for known in self._loaders:
            if loader is not None and known.loader() is loader:
                return known
        number = self._register(*before.about)
        self._loaders.append(_LoaderHandle(number, before.about, before.loader))
        return self._loaders[-1]


@dataclass
class _LoaderHandle:
    """A loader of the program."""

    number: int
    about: tuple[str, dict[str, object]]
    loader: Callable[[], Any]  # a weak reference
    iterator: Callable[[], Any] = lambda: None  # to the one made last
    epoch: int = -1
    dataset: Values | None = None  # as the program has left it; None: unknown
    # attributes that it changed between passes; None: no two passes were compared
    changes: list[str] | None = None

    def is_like(self, kind: str, settings: dict[str, object]) -> bool:
        """Tell whether a loader of these settings differs from this one in lengths alone."""
        own_kind, own = self.about
        names = {*own, *settings} - _LENGTHS
        return kind == own_kind and all(own.get(name) == settings.get(name) for name in names)

    def begins(self, loader: Any) -> list[str] | None:
        """Return what the program has changed in the dataset since the last pass, if that is news.

        A pass begins. In the main process, workers change nothing: what it has is what the program
        makes of it.
        """
        before, now = self.dataset, attributes(loader.dataset)
        self.dataset = now if getattr(loader, "num_workers", 0) else None
        known = self.changes
        news = changed(before, now) if before is not None and now is not None else None
        if news is None or known is not None and (known or not news):
            return None
        self.changes = news
        return news

    def ends(self, iterator: Any) -> None:
        """Note that a pass is over.

        Without workers, what the dataset did to itself in it is no change by the program.
        """
        with fail_open:  # whether it changes stays unknown
            if not iterator._num_workers:
                self.dataset = attributes(iterator._dataset)


@dataclass
class IteratorState:
    """State of one iterator."""

    loader: int
    epoch: int
    yielded: int = 0
    arrived: int = -1  # the batch that came out of the queue last
    asked: bool = False  # inside __next__
    # samples of the batches that were ordered and are not there yet
    drawn: dict[int, int] = field(default_factory=dict)
    own_collate: bool = False
    of: _LoaderHandle | None = None
    recording: int = field(default_factory=lambda: recorder.recordings)  # the one it is known to

    def joins(self, known: _LoaderHandle, iterator: Any) -> None:
        """Note that a pass goes on or begins, perhaps in another recording than the last one."""
        self.of, self.loader, self.epoch = known, known.number, known.epoch
        known.iterator = weakref.ref(iterator)
        if self.recording != recorder.recordings:
            self.recording = recorder.recordings
            _watch_workers(iterator, known.number)

    def ended(self, iterator: Any) -> None:
        """Note that the loader has no more batches."""
        if self.of is not None:
            self.of.ends(iterator)

    def samples(self, number: int, batch: Any, known: BatchContents | None = None) -> int:
        """Return the samples of a batch.

        They are the indices drawn for it, else an estimate from its tensors; 0 if unknown. A
        dataset whose items are whole batches is often read with batch_size=1 and a collate function
        that takes them out of the list.
        """
        drawn = self.drawn.pop(number, 0)
        if drawn == 1 and self.own_collate and may_hold_more(batch):
            return 0
        return drawn or (rows(batch) if known is None else known.samples)


def _never(iterator: Any, state: IteratorState) -> bool:
    return False


def watched_next(
    original: Callable[[Any], Any], adopts: Callable[[Any, IteratorState], bool] = _never
) -> Callable[[Any], Any]:
    """Time ``__next__`` and describe its result.

    Args:
        original: the iterator's own.
        adopts: takes over an iterator of an earlier recording, unless it returns False.
    """

    @functools.wraps(original)
    def __next__(iterator: Any) -> Any:
        segment, state = recorder.main, getattr(iterator, "_feedline", None)
        if state is None or state.asked:  # a subclass calls its base's
            return original(iterator)
        if state.recording != recorder.recordings:
            if not adopts(iterator, state):
                return original(iterator)
            segment = recorder.main
        if segment is None:
            pause = recorder.pause  # another thread may end it at any time
            if pause is None:
                return original(iterator)
            if state.loader in pause.batches_during_pause:
                return _rested_next(original, iterator, state, pause.handed_over)
            segment = recorder.resume()
            if segment is None:  # another thread has ended the recording
                return original(iterator)
        recorder.asked = True
        schedule.batch_requests[state.loader] += 1
        recorder.loader, recorder.batch = state.loader, batch_key(state.epoch, state.yielded)
        with Span(segment, Stage.NEXT, state.loader, recorder.batch) as span:
            state.asked = True
            try:
                batch = original(iterator)
            except StopIteration:
                span.flags = Flag.END
                state.ended(iterator)
                raise
            finally:
                state.asked = False
            span.flags = Flag.FIRST if state.yielded == 0 else 0
            _note(span, iterator, state, batch)
            segment.window = window_of(state.epoch, span.number & 0xFFFFFFFF)
        return batch

    return __next__


def _rested_next(
    original: Callable[[Any], Any],
    iterator: Any,
    state: IteratorState,
    handed_over: Callable[[int, int], None],
) -> Any:
    """Hand over the next batch, which was asked for during a pause.

    Batches and samples are counted in that pause, and the end of an epoch is recorded, or that no
    batch came.
    """
    recorder.asked = state.asked = True
    begin = clock.wall_ns()
    try:
        batch = original(iterator)
    except BaseException as error:
        at_its_end = isinstance(error, StopIteration)
        if at_its_end:
            state.ended(iterator)
        key = batch_key(state.epoch, state.yielded)
        segment = recorder.resume() if at_its_end else recorder.finish_pause()
        if segment is not None:
            flags = Flag.END if at_its_end else Flag.FAILED
            segment.window = window_of(state.epoch, state.yielded)
            segment.add(
                Stage.NEXT,
                begin,
                clock.wall_ns() - begin,
                number=key,
                source=state.loader,
                flags=flags,
            )
        raise
    finally:
        state.asked = False
    samples = 0
    with fail_open:  # an exotic batch or loader: its size stays unknown
        samples = state.samples(_number_of(iterator, state), batch)
    state.yielded += 1
    handed_over(state.loader, samples)
    return batch


def _number_of(iterator: Any, state: IteratorState) -> int:
    """Return the number in the epoch of the batch that was handed over."""
    if hasattr(iterator, "_rcvd_idx"):
        return (
            int(iterator._rcvd_idx) - 1 if getattr(iterator, "_in_order", True) else state.arrived
        )
    return state.yielded


def _note(span: Span, iterator: Any, state: IteratorState, batch: Any) -> None:
    """Record the number of a batch and its content."""
    try:
        number = _number_of(iterator, state)
        span.number = batch_key(state.epoch, max(number, 0))
        state.yielded += 1
        made, about = recorder.made
        if made != id(batch):
            about = describe(batch)
        recorder.made = 0, None
        span.nbytes, span.extra = about.nbytes, state.samples(number, batch, about)
        if recorder.convergence is not None:
            recorder.convergence.handed_over(span.extra)
        if recorder.contents is not None:
            recorder.contents.handed_over(batch)
        pinned = getattr(iterator, "_pin_memory", False)
        span.flags |= about.flags | (Flag.PINNED if pinned else 0)
    except Exception:  # an exotic batch or loader: its size stays unknown
        reraise_of_handler()


def _watched_next_index(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Time the sampler, and count the samples that it draws."""

    @functools.wraps(original)
    def _next_index(iterator: Any) -> Any:
        segment, state = recorder.main, getattr(iterator, "_feedline", None)
        if segment is None:
            index = original(iterator)
        else:
            with Span(segment, Stage.SAMPLER, recorder.loader):
                index = original(iterator)
        # None: an iterable dataset has no indices
        if state is not None and type(index) is list and index and index[0] is not None:
            state.drawn[getattr(iterator, "_send_idx", state.yielded)] = len(index)
        return index

    return _next_index


def _watched_try_get_data(original: Callable[..., Any]) -> Callable[..., Any]:
    """Detect batches that leave the result queue (or the pin thread's queue)."""

    @functools.wraps(original)
    def _try_get_data(iterator: Any, *args: Any, **kwargs: Any) -> Any:
        got = original(iterator, *args, **kwargs)
        segment, state = recorder.main, getattr(iterator, "_feedline", None)
        if state is None or not got[0] or not isinstance(got[1][0], int):
            return got
        state.arrived = number = got[1][0]  # in a pause too, where its samples are counted
        if segment is not None:
            segment.add(
                Stage.ARRIVE,
                clock.wall_ns(),
                0,
                number=batch_key(state.epoch, number),
                extra=iterator._task_info.get(number, (-1,))[0],
                source=state.loader,
            )
        return got

    return _try_get_data


def _watch_makers(makers: list[tuple[int, int]]) -> None:
    """Have the threads that make batches looked at: (process, thread) each."""
    try:
        if recorder.looks is not None:
            recorder.looks.watch(makers)
    except Exception as error:  # where the kernel does not tell, what they wait for stays unknown
        reraise_of_handler()
        clock.counters.absent["/proc/PID/task/THREAD/syscall"] = masks.error(error)


def _watch_workers(iterator: Any, loader: int) -> None:
    """Have the workers of an iterator looked at, if it has any."""
    makers = list(getattr(iterator, "_workers", ()))
    _watch_makers([(worker.pid, worker.pid) for worker in makers])
    _watch_memory(loader, makers)


def _watch_memory(loader: int, workers: list[Any]) -> None:
    """Have the memory of a loader's workers read, which come by their numbers."""
    with fail_open:  # one has ended already, or they are threads
        if recorder.worker_memory is not None:
            recorder.worker_memory.watch(loader, workers)


def _watch_queue(queue: Any, state: IteratorState) -> None:
    """Time receiving and unpickling, in the thread that reads the queue.

    Patches the instance; other queues are not touched.
    """
    receive, get = queue._recv_bytes, type(queue).get
    # a cycle would keep its pipes open until the next garbage collection
    itself = weakref.ref(queue)
    received: list[
        tuple[int, int, int, int]
    ] = []  # when a pickle's first byte was there (by all three clocks), and its length

    def watched_receive(*args: Any) -> Any:
        own = (
            (0, UNMEASURED)
            if recorder.main is None
            else (clock.cpu_ns(), clock.counters.runqueue_ns())
        )
        begin = clock.wall_ns()
        pickled = receive(*args)
        received.append((begin, *own, len(pickled)))
        return pickled

    def watched_get(*args: Any, **kwargs: Any) -> Any:
        item = get(itself(), *args, **kwargs)
        end = clock.wall_ns()
        while received:
            begin, cpu, runqueue, length = received.pop()
            if recorder.main is not None:
                known = (
                    runqueue != UNMEASURED and (now := clock.counters.runqueue_ns()) != UNMEASURED
                )
                own = (clock.cpu_ns() - cpu, now - runqueue) if known else (UNMEASURED, UNMEASURED)
                recorder.main.add(
                    Stage.TRANSPORT, begin, end - begin, *own, nbytes=length, source=state.loader
                )
        return item

    queue._recv_bytes, queue.get = watched_receive, watched_get


_pinning = Inside()


def attach_pin(patches: Patches) -> None:
    """Time copies to pinned memory, in the pin thread or (without workers) in the main thread.

    Raises:
        AttributeError, ImportError: this version is built differently.
    """
    from torch.utils.data._utils import pin_memory as module

    original = module.pin_memory

    @functools.wraps(original)
    def pin_memory(data: Any, *args: Any, **kwargs: Any) -> Any:
        segment = recorder.main
        if segment is None or _pinning.depth:  # it calls itself for the parts of a batch
            return original(data, *args, **kwargs)
        _pinning.depth += 1
        try:
            with Span(segment, Stage.PIN) as span:
                span.nbytes = describe(data).nbytes
                return original(data, *args, **kwargs)
        finally:
            _pinning.depth -= 1

    patches.set(module, "pin_memory", pin_memory)
