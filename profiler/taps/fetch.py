"""The making of a batch, in a worker or in the main thread: samples one by one, what they do in detail, collate, file traffic.

``_DatasetKind.create_fetcher`` is the one place that torch's and torchdata's loaders, with and without workers, go through.
"""

import functools
import time
from collections.abc import Callable
from typing import Any

from torch.utils.data._utils import collate as torch_collate

from feedline.profiler import clock
from feedline.profiler.clock import Traffic, counters
from feedline.profiler.events import UNMEASURED, Flag, Stage
from feedline.profiler.record.detail import detail
from feedline.profiler.record.recorder import Span, inside, recorder
from feedline.profiler.store.segment import FETCH_HISTOGRAM, SAMPLE_HISTOGRAM, Segment
from feedline.profiler.taps.batch import Batch, describe
from feedline.profiler.taps.patch import Patches

FEWEST, MOST = 4, 256  # one sample in so many is looked at in detail, of the first ones
DENSE = 64  # after so many, half as often; after twice as many, a third; ...
TRAFFIC_EVERY = 4  # the file traffic of one batch in so many is read after DENSE batches, which were all read: twice 28 us
DEFAULT_COLLATES = (torch_collate.default_collate, torch_collate.default_convert)
NOTHING = Batch(0, 0, 0)


def attach(patches: Patches) -> None:
    """Wrap every fetcher that is made from now on.

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
                watch(fetcher)
            except Exception as error:
                recorder.segment.add(Stage.FETCH, clock.wall_ns(), 0, flags=Flag.FAILED, source=recorder.segment.name_id(repr(error)))
        return fetcher

    create_fetcher.by_feedline = True  # type: ignore[attr-defined]
    patches.set(_DatasetKind, "create_fetcher", staticmethod(create_fetcher))


def watch(fetcher: Any) -> None:
    """Time one fetcher's parts. Only the fetcher sees the stand-ins; ``worker_info.dataset`` and the user's own references stay."""
    lens = Lens()
    iterator = getattr(fetcher, "dataset_iter", None)
    if iterator is None:
        batched = getattr(fetcher.dataset, "__getitems__", None)
        fetcher.dataset = (WatchedBatches if batched else WatchedSamples)(fetcher.dataset, lens)
    elif not hasattr(iterator, "state_dict"):  # torchdata asks the iterator for its state, and by its type
        fetcher.dataset_iter = WatchedIterator(iterator, lens)
    watched = WatchedFetch(fetcher, lens)
    fetcher.collate_fn = watched.collate
    fetcher.fetch = watched.fetch


class WatchedFetch:
    """Times batches and their collate, with the file traffic of each."""

    def __init__(self, fetcher: Any, lens: "Lens") -> None:
        self._fetch, self._collate, self._lens = fetcher.fetch, fetcher.collate_fn, lens
        self._batched = fetcher.auto_collation
        self._custom = 0 if fetcher.collate_fn in DEFAULT_COLLATES else Flag.CUSTOM
        self._about = NOTHING
        self._made_at = 0  # when the last sample of the batch was there
        self._batches = 0

    def fetch(self, index: Any) -> Any:
        segment = recorder.segment
        if segment is None:
            return self._fetch(index)
        self._batches += 1
        stands_for = 1 if self._batches <= DENSE else 0 if self._batches % TRAFFIC_EVERY else TRAFFIC_EVERY
        before = (counters.traffic(), time.process_time_ns()) if stands_for else None
        begun = self._lens.begun
        inside.depth += 1  # transforms that are nn.Modules are no forward pass
        try:
            with Span(segment, Stage.FETCH, source=recorder.loader, number=recorder.batch) as span:
                try:
                    batch = self._fetch(index)
                except StopIteration:  # the data set is at its end; a batch that is dropped for being short is in here too
                    span.flags = Flag.END
                    raise
                span.extra = (len(begun) or len(index)) if self._batched else self._about.samples
            segment.count(FETCH_HISTOGRAM, (span.start, clock.wall_ns()))
            if before is not None:
                self._write_traffic(segment, *before, stands_for)
        finally:
            inside.depth -= 1
            self._count_samples(segment, begun)
        return batch

    def collate(self, samples: Any) -> Any:
        segment = recorder.segment
        if segment is None:
            return self._collate(samples)
        with Span(segment, Stage.COLLATE, source=recorder.loader, number=recorder.batch, flags=self._custom) as span:
            self._made_at = span.start
            batch = self._collate(samples)
        try:
            self._about = about = describe(batch)
            recorder.made = id(batch), about
            segment.add(
                Stage.BATCH, span.start, 0, 0, 0, about.nbytes, recorder.batch, about.samples, recorder.loader, about.flags | self._custom
            )
        except Exception:
            self._about = NOTHING  # an exotic batch: its bytes stay unknown
        return batch

    def _count_samples(self, segment: Segment, begun: list[int]) -> None:
        begun.append(self._made_at)
        segment.count(SAMPLE_HISTOGRAM, begun)
        begun.clear()

    @staticmethod
    def _write_traffic(segment: Segment, before: Traffic | None, cpu_before: int, stands_for: int) -> None:
        after, cpu = counters.traffic(), time.process_time_ns()
        if before is not None and after is not None:
            new = Traffic(*((b - a) * stands_for for a, b in zip(before, after)))
            cpu = (cpu - cpu_before) * stands_for
            segment.add(Stage.TRAFFIC, 0, new.major_faults, new.disk, cpu, new.chars, recorder.batch, new.calls, recorder.loader)


class Lens:
    """Decides which samples are looked at in detail, and writes what they do. Takes nothing from any random state.

    One sample in ``every`` on average, at irregular distances (a linear congruential sequence of its own), so that a pattern in the data
    set or the batch size cannot hide. ``every`` follows from what the last one cost: a span, the sample's own too, takes 8 us where all
    is in the caches (benchmarks/loader_cost.py) and about 17 us in a real sample (benchmarks/operation_taps.py), and the average sample
    shall pay about 4 us, which leaves 6 of the promised 10 us to what is done for every sample and batch. An ImageFolder's sample has
    10 spans: one in 40 is looked at. Below FEWEST, samples without spans would pay more; at MOST, samples of 64 spans pay the 4 us still.
    That is for the first ones, so that a short run knows its samples too: what the n-th look adds to what is known falls as 1 / n, and so
    does what is paid for it.

    The first sample pays for imports and cold caches that no other one pays for: it is looked at, and stands for itself alone.

    Attributes:
        countdown: to the next sample that is looked at; the caller counts.
        begun: when each sample of the batch under way began. A sample ends where the next one begins: one reading of the clock, at the one
            moment at which we are called anyway. A sample evicts our code from the caches, so a second moment would cost as much again.
    """

    def __init__(self) -> None:
        self.every = recorder.every or 1
        self.countdown = 1
        self.begun: list[int] = []
        self._state = 12345
        self._looks = 0

    def look(self, make: Callable[[], Any], samples: int) -> Any:
        """Make a sample (or several, for ``__getitems__``) with every span in it written down."""
        segment = recorder.segment
        assert segment is not None
        self._state = (self._state * 1103515245 + 12345) & 0x7FFFFFFF
        self.countdown = 1 + (self._state >> 8) % (2 * self.every - 1)
        written = 0

        def write(
            stage: int, name: str, start: int, wall: int, cpu: int, runqueue: int = UNMEASURED, nbytes: int = 0, extra: int = 0
        ) -> None:
            nonlocal written
            written += 1
            segment.add(stage, start, wall, cpu, runqueue, nbytes, recorder.batch, extra, segment.name_id(name))

        detail.write = write
        try:
            with Span(segment, Stage.SAMPLE, source=recorder.loader, number=recorder.batch) as span:
                span.extra, span.nbytes = self.every, samples
                return make()
        finally:
            detail.write = None
            if not self.begun:  # __getitems__ made them all at once
                segment.count(SAMPLE_HISTOGRAM, (0, (clock.wall_ns() - span.start) // samples))
            self._looks += 1
            self.every = recorder.every or min(MOST, max(FEWEST, 4 * (written + 1) // samples)) * (1 + self._looks // DENSE)


class WatchedSamples:
    """Stands in for a map-style data set inside its fetcher."""

    def __init__(self, dataset: Any, lens: Lens) -> None:
        self._dataset = dataset
        self._lens = lens

    def __getitem__(self, index: Any) -> Any:
        lens = self._lens
        if recorder.segment is None:
            return self._dataset[index]
        lens.begun.append(clock.wall_ns())
        lens.countdown -= 1
        if lens.countdown:
            return self._dataset[index]
        return lens.look(lambda: self._dataset[index], 1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dataset, name)


class WatchedBatches(WatchedSamples):
    """The same for a data set that makes a whole batch at once."""

    def __getitems__(self, indices: Any) -> Any:
        lens = self._lens
        if recorder.segment is None:
            return self._dataset.__getitems__(indices)
        lens.countdown -= 1
        if lens.countdown:
            return self._dataset.__getitems__(indices)
        return lens.look(lambda: self._dataset.__getitems__(indices), len(indices))


class WatchedIterator:
    """Stands in for the iterator of an iterable data set."""

    def __init__(self, iterator: Any, lens: Lens) -> None:
        self._iterator = iterator
        self._lens = lens

    def __iter__(self) -> "WatchedIterator":
        return self

    def __next__(self) -> Any:
        lens = self._lens
        if recorder.segment is None:
            return next(self._iterator)
        lens.begun.append(clock.wall_ns())
        lens.countdown -= 1
        try:
            return lens.look(self._iterator.__next__, 1) if lens.countdown == 0 else next(self._iterator)
        except StopIteration:
            lens.begun.pop()  # that was no sample
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._iterator, name)
