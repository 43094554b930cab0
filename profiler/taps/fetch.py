"""Times the making of a batch, in a worker or in the main thread.

It times samples, their operations, collate, and file traffic. ``_DatasetKind.create_fetcher`` is
the one place that torch's and torchdata's loaders, with and without workers, go through.
"""

import copy
import functools
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from torch.utils.data._utils import collate as torch_collate

from feedline.profiler import clock, masks
from feedline.profiler.clock import FileTraffic, counters
from feedline.profiler.events import UNMEASURED, Flag, Stage
from feedline.profiler.fail_open import reraise_of_handler
from feedline.profiler.record.detail import detail
from feedline.profiler.record.recorder import Span, inside, recorder
from feedline.profiler.store.segment import Segment
from feedline.profiler.taps.batch_contents import BatchContents, describe
from feedline.profiler.taps.patch import Patches
from feedline.profiler.taps.sample_marks import SampleMarks

_FEWEST, _MOST = 4, 256  # one of the first samples in N is recorded in detail
# samples after which detail is a quarter as frequent; after twice as many, a ninth; ... (rarer)
_DENSE = 64
# recorded one after another; then as many at every 4th sample, every 9th, ..., up to every Nth
_EARLY = 8
_NOTHING = BatchContents(0, 0, 0)
# after _DENSE batches, one batch in N is recorded in detail: each of its samples costs 3 us, its
# file traffic twice 28 us
_OPENED = 8
_DEFAULT_COLLATES = (torch_collate.default_collate, torch_collate.default_convert)


def attach(patches: Patches) -> None:
    """Wrap every fetcher created from now on.

    Raises:
        AttributeError: this torch makes its fetchers in another way.
    """
    from torch.utils.data.dataloader import _DatasetKind

    original = _DatasetKind.create_fetcher
    if getattr(original, "by_feedline", False):
        return  # a forked worker inherits its parent's taps

    @functools.wraps(original)
    def create_fetcher(*args: Any, **kwargs: Any) -> Any:
        fetcher = original(*args, **kwargs)
        if recorder.segment is not None:
            try:
                _watch(fetcher)
            except Exception as error:
                reraise_of_handler()
                why = recorder.segment.name_id(masks.error(error))
                recorder.segment.add(Stage.FETCH, clock.wall_ns(), 0, flags=Flag.FAILED, source=why)
        return fetcher

    create_fetcher.by_feedline = True  # type: ignore[attr-defined]
    patches.set(_DatasetKind, "create_fetcher", staticmethod(create_fetcher))


def _watch(fetcher: Any) -> None:
    """Time the parts of one fetcher."""
    kind: Any = type(fetcher)
    watched = _WatchedFetch(fetcher)
    if "fetch" in vars(fetcher) or not hasattr(kind, "fetch"):  # another tool's
        fetcher.fetch = functools.partial(watched.fetch, fetcher, fetcher.fetch)
    else:
        fetcher.watched_by_feedline = watched
        fetcher.__class__ = _watched_kind(kind)
    fetcher.collate_fn = watched.collate


@functools.cache
def _watched_kind(kind: type) -> Any:
    """Return a class that differs from this one by a ``fetch`` that is timed.

    Were that an attribute of the fetcher itself, the two would refer to each other, and the dataset
    would stay in memory until the garbage collector comes by. Pickles and copies of a fetcher are
    what they are without feedline.
    """

    def fetch(self: Any, index: Any) -> Any:
        return self.watched_by_feedline.fetch(self, super(watched, self).fetch, index)

    def __reduce_ex__(self: Any, protocol: Any) -> Any:
        return copy.copy, (self.watched_by_feedline.unwatched(self),)

    names = {name: getattr(kind, name) for name in ("__doc__", "__module__", "__qualname__")}
    names |= {"__slots__": (), "fetch": fetch, "__reduce_ex__": __reduce_ex__}
    watched: Any = type(kind)(kind.__name__, (kind,), names)
    return watched


class _WatchedFetch:
    """Times batches and their collate.

    For some batches, a proxy makes the samples, and their file traffic is read.
    """

    def __init__(self, fetcher: Any) -> None:
        self._kind, self._collate = type(fetcher), fetcher.collate_fn
        self._in_batches = fetcher.auto_collation
        self._selector = _selectors.of(recorder.loader)
        self._place = "dataset_iter" if hasattr(fetcher, "dataset_iter") else "dataset"
        # it is given the indices of a batch
        self._by_index = fetcher.auto_collation and self._place == "dataset"
        at_once = self._by_index and getattr(fetcher.dataset, "__getitems__", None)
        self._stand_in = (
            _WatchedIterator
            if self._place == "dataset_iter"
            else _WatchedBatches
            if at_once
            else _WatchedSamples
        )
        self._begun: list[int] = []  # when each sample of the batch under way began
        self._custom = 0 if fetcher.collate_fn in _DEFAULT_COLLATES else Flag.CUSTOM
        self._asked: int | None = None  # samples of the batch under way, where its indices tell
        self._opened = 0  # batches that it stands for; 0: it is not looked into
        self._known, self._of = _NOTHING, 0  # the last one that was, and of how many samples
        self._samples = 0  # that were collated last
        self._made_at = 0  # when the last one of them was there
        self._marks = SampleMarks(recorder.salt) if self._place == "dataset_iter" else None

    def unwatched(self, fetcher: Any) -> Any:
        """Return what a fetcher is without feedline."""
        plain: Any = object.__new__(self._kind)
        vars(plain).update(vars(fetcher))
        del plain.watched_by_feedline
        if getattr(plain.collate_fn, "__self__", None) is self:
            plain.collate_fn = self._collate
        return plain

    def fetch(self, fetcher: Any, fetch: Callable[[Any], Any], index: Any) -> Any:
        """Make a batch.

        Args:
            fetcher: that it is asked of.
            fetch: what the fetcher does without feedline.
            index: of the batch.
        """
        segment = recorder.segment
        if segment is None:
            return fetch(index)
        self._asked = _length(index) if self._by_index else None
        self._opened, reads = self._selector.next_batch(), self._selector.reads
        before = (counters.traffic(), time.process_time_ns()) if reads else None
        modules, first = len(sys.modules), self._selector.is_first_batch
        inside.depth += 1  # transforms that are nn.Modules are not forward passes
        try:
            batch = (
                self._open(segment, fetcher, fetch, index)
                if self._opened
                else self._time(segment, fetch, index)
            )
        finally:
            inside.depth -= 1
        if before is not None:
            _write_traffic(
                segment, *before, reads, Flag.FIRST if first or len(sys.modules) != modules else 0
            )
        return batch

    def _time(self, segment: Segment, fetch: Callable[[Any], Any], index: Any) -> Any:
        with Span(segment, Stage.FETCH, recorder.loader, recorder.batch) as span:
            try:
                batch = fetch(index)
            except (
                StopIteration
            ):  # the dataset is at its end; a batch that is dropped for being short is in here too
                span.flags = Flag.END
                raise
            span.extra = self._samples
        return batch

    def _open(self, segment: Segment, fetcher: Any, fetch: Callable[[Any], Any], index: Any) -> Any:
        place, selector = self._place, self._selector
        own = getattr(fetcher, place)
        stand_in = self._stand_in(own, selector, self._begun)
        setattr(fetcher, place, stand_in)
        try:
            return self._time(segment, fetch, index)
        finally:
            if getattr(fetcher, place) is stand_in:
                setattr(fetcher, place, own)
            if selector.counts:
                segment.count([*self._begun, self._made_at], selector.counts)
            self._begun.clear()

    def collate(self, samples: Any) -> Any:
        segment = recorder.segment
        if segment is None:
            return self._collate(samples)
        if self._marks is not None:
            self._marks.note(segment, samples if self._in_batches else [samples])
        with Span(segment, Stage.COLLATE, recorder.loader, recorder.batch, self._custom) as span:
            self._made_at = span.start
            batch = self._collate(samples)
        try:
            number = (
                None
                if not self._in_batches
                else len(samples)
                if self._asked is None
                else self._asked
            )
            self._describe(segment, span, batch, number)
        except Exception:
            reraise_of_handler()
            self._samples = 0  # an exotic batch: its bytes stay unknown
        return batch

    def _describe(self, segment: Segment, span: Span, batch: Any, samples: int | None) -> None:
        """Say what collate has made, for the batches that are looked into.

        Another one is like the last of these, sample by sample.

        Args:
            segment: that it is recorded in.
            span: of the batch's making.
            batch: what collate returned.
            samples: that it was made of; None: it was made as it is.
        """
        if self._opened or not self._of or samples is None:
            self._known = about = describe(batch)
            self._of, times, flags = samples or 0, self._opened, about.flags | self._custom
            stands_for = times * (about.samples if samples is None else samples)
            if times:
                nbytes, tensors = about.nbytes * times, about.tensors * times
                segment.add(
                    Stage.BATCH,
                    span.start,
                    0,
                    tensors,
                    times,
                    nbytes,
                    recorder.batch,
                    stands_for,
                    recorder.loader,
                    flags,
                )
        else:
            about = self._known
            if samples != self._of:
                about = BatchContents(
                    about.nbytes * samples // self._of,
                    about.samples * samples // self._of,
                    about.flags,
                    about.tensors,
                )
        self._samples = about.samples if samples is None else samples
        recorder.made = id(batch), about


def _write_traffic(
    segment: Segment, before: FileTraffic | None, cpu_before: int, stands_for: int, flags: int
) -> None:
    """Record what this thread has read since, multiplied by the batches that this one represents."""
    after, cpu = counters.traffic(), time.process_time_ns()
    if before is not None and after is not None:
        new = FileTraffic(*((b - a) * stands_for for a, b in zip(before, after)))
        if min(new) < 0:  # of two files: the program closed the descriptor that they are read from
            return
        cpu = (cpu - cpu_before) * stands_for
        at = clock.wall_ns()
        segment.add(
            Stage.TRAFFIC,
            at,
            new.major_faults,
            new.disk,
            cpu,
            new.chars,
            recorder.batch,
            new.calls,
            recorder.loader,
            flags,
        )
        segment.add(
            Stage.KERNEL,
            at,
            new.minor_faults,
            new.system_ns,
            number=recorder.batch,
            source=recorder.loader,
            flags=flags,
        )


class _SampleSelector:
    """Decides which batches and samples are recorded in detail, and records their operations.

    It leaves all random states unchanged. One sample in ``every`` on average, at irregular
    intervals (from its own linear congruential sequence), so that a pattern in the data set or the
    batch size cannot hide. ``every`` follows from the cost of the last one: a span, including the
    sample's own, takes 8 us with warm caches (benchmarks/loader_cost.py) and about 17 us in a real
    sample (benchmarks/operation_taps.py). The average sample should pay about 4 us, which leaves 6
    of the promised 10 us for the work in every sample and batch. An ImageFolder's sample has 10
    spans: one in 40 is recorded. Below _FEWEST, samples without spans would pay more; at _MOST,
    samples of 64 spans still pay the 4 us. This holds for the first samples, so that a short run
    has details too; later they are ``_rarer``. For the same reason only one batch in _OPENED is
    recorded after the first _DENSE, and fewer later: alternately for the times of all its samples
    and for details of some, because a sample recorded in detail takes longer.

    A short run has few samples, so the first _EARLY are all recorded, and from then on one in 4, 9,
    16, ...: 24 of the first 112, 48 of the first 728. This costs a process about 40 detailed
    samples once, 8 ms for those of an ImageFolder.

    The first sample pays for imports and cold caches, and so does a later one that imports
    something: they are flagged as FIRST, and their time belongs to no part.

    Args:
        segment: of the recording.

    Attributes:
        details: number of batches whose details the current batch represents; 0: none of its
            samples is recorded in detail.
        counts: number of batches whose sample times it represents; 0: they are not recorded.
        stands_for: how many the next detailed sample represents: samples, or batches made at once.
        reads: number of batches whose file traffic it represents; 0: it is not read. Later it is
            read in the batch after a detailed one.
    """

    def __init__(self, segment: Segment | None) -> None:
        self.segment = segment
        self.details = self.counts = self.reads = 1
        self._countdown = 1  # to the next sample that is looked at
        self._every = self.stands_for = self._aimed_for = 1
        self._state = 12345
        self._recorded = self._batches = self._opened = 0  # samples, batches
        self._closed = 1  # batches until the next one that is looked into
        self._reads_next = 0

    @property
    def is_first_batch(self) -> bool:
        """Whether the current batch is the first one."""
        return self._batches == 1

    def next_batch(self) -> int:
        """Return how many batches the next one represents; 0: it is not recorded in detail."""
        self._batches += 1
        if self._batches <= _DENSE or recorder.every is not None:
            return 1
        self.reads, self._reads_next = self._reads_next, 0
        self._closed -= 1
        if self._closed:
            return 0
        self._opened += 1
        stands_for = self._reads_next = _OPENED * _rarer(self._opened)
        self._closed = self._distance(stands_for)
        self.details, self.counts = (2 * stands_for, 0) if self._opened % 2 else (0, 2 * stands_for)
        if self.details not in (0, self._aimed_for):  # else the countdown continues
            self._aim()
        return stands_for

    def is_next(self) -> bool:
        """Return whether the next sample is recorded in detail."""
        if not self.details:
            return False
        self._countdown -= 1
        return self._countdown <= 0

    def record(self, make: Callable[[], Any], samples: int) -> Any:
        """Make a sample (or several, for ``__getitems__``) and record every span in it."""
        segment = recorder.segment
        assert segment is not None
        written = 0

        def write(
            stage: int,
            name: str,
            start: int,
            wall: int,
            cpu: int,
            runqueue: int = UNMEASURED,
            nbytes: int = 0,
            extra: int = 0,
        ) -> None:
            nonlocal written
            written += 1
            segment.add(
                stage,
                start,
                wall,
                cpu,
                runqueue,
                nbytes,
                recorder.batch,
                extra,
                segment.name_id(name),
            )

        detail.write = write
        try:
            with Span(segment, Stage.SAMPLE, recorder.loader, recorder.batch) as span:
                span.extra, modules = self.stands_for, len(sys.modules)
                made = make()
                span.nbytes = samples  # none in one that raised: an iterator at its end
                span.flags = 0 if self._recorded and len(sys.modules) == modules else Flag.FIRST
                return made
        finally:
            detail.write = None
            self._recorded += 1
            late = min(_MOST, max(_FEWEST, 4 * (written + 1) // samples)) * _rarer(self._recorded)
            self._every = recorder.every or min(late, (1 + self._recorded // _EARLY) ** 2)
            self._aim()

    def _aim(self) -> None:
        """Aim at the next sample to look at.

        It is as far away as the batches that are looked into for it are apart.
        """
        self._aimed_for = batches = self.details or 1
        distance = max(1, self._every // batches)
        self._countdown, self.stands_for = self._distance(distance), distance * batches

    def _distance(self, mean: int) -> int:
        """Draw a distance from 1 to 2 * mean - 1."""
        self._state = (self._state * 1103515245 + 12345) & 0x7FFFFFFF
        return 1 + (self._state >> 8) % (2 * mean - 1)


def _rarer(seen: int) -> int:
    """Return how much longer the intervals are after this many samples.

    The information that one more adds falls as 1 / n.
    """
    return (1 + seen // _DENSE) ** 2


class _Selectors(threading.local):
    """One selector for each loader that this thread makes batches for.

    An epoch continues where the previous one ended.
    """

    def __init__(self) -> None:
        self._by_loader: dict[int, _SampleSelector] = {}

    def of(self, loader: int) -> _SampleSelector:
        if inside.depth:  # a loader inside a sample of another one
            return _SampleSelector(recorder.segment)
        selector = self._by_loader.get(loader)
        if selector is None or selector.segment is not recorder.segment:
            selector = self._by_loader[loader] = _SampleSelector(recorder.segment)
        return selector


_selectors = _Selectors()


def _length(indices: Any) -> int | None:
    """Return the length of a dataset; None for an iterator."""
    try:
        return len(indices)
    except Exception:
        reraise_of_handler()
        return None


class _WatchedSamples:
    """Proxy for a map-style dataset inside its fetcher, for batches that are recorded in detail.

    Args:
        begun: receives the start of each sample. A sample ends where the next one begins, so one
            reading of the clock per sample is enough. A sample evicts feedline's code from the
            caches, so a second reading would double the cost.
    """

    def __init__(self, dataset: Any, selector: _SampleSelector, begun: list[int]) -> None:
        self._dataset, self._selector, self._begun = dataset, selector, begun

    def __getitem__(self, index: Any) -> Any:
        selector = self._selector
        if recorder.segment is None:
            return self._dataset[index]
        self._begun.append(clock.wall_ns())
        return (
            selector.record(lambda: self._dataset[index], 1)
            if selector.is_next()
            else self._dataset[index]
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dataset, name)


class _WatchedBatches(_WatchedSamples):
    """The same for a dataset that makes a whole batch at once."""

    def __getitems__(self, indices: Any) -> Any:
        samples, segment = _length(indices), recorder.segment
        if segment is None or not samples or not self._selector.is_next():
            return self._dataset.__getitems__(indices)
        begin, stands_for = clock.wall_ns(), self._selector.stands_for
        made = self._selector.record(lambda: self._dataset.__getitems__(indices), samples)
        segment.count((0, (clock.wall_ns() - begin) // samples), samples * stands_for)
        return made


class _WatchedIterator:
    """Proxy for the iterator of an iterable dataset."""

    def __init__(self, iterator: Any, selector: _SampleSelector, begun: list[int]) -> None:
        self._iterator, self._selector, self._begun = iterator, selector, begun

    def __iter__(self) -> "_WatchedIterator":
        return self

    def __next__(self) -> Any:
        selector = self._selector
        if recorder.segment is None:
            return next(self._iterator)
        self._begun.append(clock.wall_ns())
        try:
            return (
                selector.record(self._iterator.__next__, 1)
                if selector.is_next()
                else next(self._iterator)
            )
        except StopIteration:
            self._begun.pop()  # that was not a sample
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._iterator, name)
