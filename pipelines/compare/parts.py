"""Runs a loader for a part of an epoch, and for a whole one."""

import math
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice

import torch

from feedline.pipelines.compare.cpu_time import tree_cpu_s
from feedline.pipelines.compare.result import Epoch, Part
from feedline.pipelines.loaders.protocol import Loader, LoaderKind, Task
from feedline.pipelines.photos import Photos
from feedline.pipelines.probes.pagecache import evict

_MOST_SAMPLES = 200_000  # of a repeated dataset: a list of that many paths takes some 20 MB in each worker
_NAMED = 5  # samples named as wrong


@contextmanager
def made(kind: LoaderKind, task: Task) -> Iterator[Loader]:
    """A loader that is closed at the end of the block."""
    loader = kind.make(task)
    try:
        yield loader
    finally:
        loader.close()


def whole_epoch(kind: LoaderKind, task: Task) -> tuple[Epoch, Loader]:
    """Run an epoch, and check that every sample arrives exactly once.

    Returns:
        What was found, and the loader, closed.
    """
    start = time.perf_counter()
    seen: Counter[int] = Counter()
    with made(kind, task) as loader:
        for batch in loader.epoch(0):
            if len(batch.images) != len(batch.index):
                return Epoch(sum(seen.values()), 0.0, f"{len(batch.images)} images came with {len(batch.index)} labels"), loader
            seen.update(batch.index.tolist())
    return Epoch(sum(seen.values()), time.perf_counter() - start, not_once(seen, len(task.photos))), loader


def not_once(seen: Counter[int], samples: int) -> str:
    """Which of the samples 0 to ``samples`` - 1 did not arrive exactly once, as text."""
    twice = sorted(index for index, times in seen.items() if times > 1)
    never = sorted(set(range(samples)) - set(seen))
    unknown = sorted(set(seen) - set(range(samples)))
    groups = (("came more than once", twice), ("never came", never), ("do not exist", unknown))
    told = [f"{len(group)} {what} ({_first(group)})" for what, group in groups if group]
    return "; ".join(told)


def _first(group: list[int]) -> str:
    """The first few, as text."""
    return ", ".join(map(str, group[:_NAMED])) + (", ..." if len(group) > _NAMED else "")


def part_of_epoch(kind: LoaderKind, task: Task, number: int, seconds: float) -> Part:
    """Run a fresh loader for some time, after skipping as many batches as may have been made in advance.

    The time ends with a batch whose number is a multiple of the number of workers: they finish theirs at about the same time.

    Raises:
        ValueError: the epoch is too short to measure anything.
    """
    start = time.perf_counter()
    with made(kind, task) as loader:
        batches = loader.epoch(number)
        drawn = sum(1 for _ in islice(batches, 1))
        _finished(task)
        first_batch_s = time.perf_counter() - start
        drawn += sum(1 for _ in islice(batches, made_ahead(task) - 1))
        _finished(task)
        gpu = _GpuShare(task.settings.device)
        wall, cpu, main = time.perf_counter(), tree_cpu_s(), time.thread_time()
        samples = 0
        for count, batch in enumerate(batches, 1):
            samples += len(batch.index)
            gpu.look()
            if count % max(1, task.settings.workers) == 0 and time.perf_counter() - wall >= seconds:
                break
        _finished(task)
        wall, cpu, main = time.perf_counter() - wall, tree_cpu_s() - cpu, time.thread_time() - main
    if not samples:
        raise ValueError(f"an epoch of {drawn} batches is too short to measure: use more images or smaller batches")
    return Part(samples, wall, cpu, main, first_batch_s, None if gpu.share is None else gpu.share * wall)


def made_ahead(task: Task) -> int:
    """How many batches can be ready in advance: two per worker, and the one in progress. At most a third of an epoch."""
    return max(1, min(3 * task.settings.workers, len(task.photos) // task.settings.batch_size // 3))


def _finished(task: Task) -> None:
    """Wait for the device."""
    if task.settings.device != "cpu":
        torch.cuda.synchronize(task.settings.device)


def long_enough(task: Task, samples: float) -> Task:
    """The same images repeated, so that an epoch has at least this many samples."""
    photos = task.photos.photos
    times = max(1, math.ceil(min(samples, _MOST_SAMPLES) / len(photos)))
    return replace(task, photos=replace(task.photos, photos=photos * times))


def read_all(photos: Photos) -> None:
    """Read every file into the page cache."""
    for photo in photos.photos:
        with open(photo.path, "rb", buffering=0) as file:
            while file.read(1 << 20):
                pass


def evict_all(photos: Photos) -> None:
    """Evict every file from the page cache."""
    for path in {photo.path for photo in photos.photos}:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            evict(descriptor)
        finally:
            os.close(descriptor)


class _GpuShare:
    """Samples the GPU's utilisation: the share of NVML's last sample period in which any kernel ran."""

    EVERY_S = 0.1

    def __init__(self, device: str) -> None:
        self.device = device
        self._seen: list[int] = []
        self._next = 0.0 if device != "cpu" else math.inf

    def look(self) -> None:
        now = time.perf_counter()
        if now < self._next:
            return
        self._next = now + self.EVERY_S
        try:
            self._seen.append(torch.cuda.utilization(self.device))
        except Exception:  # no NVML: the GPU's time stays unknown
            self._next = math.inf

    @property
    def share(self) -> float | None:
        """The share, 0 to 1; None without a GPU or a sample."""
        return sum(self._seen) / len(self._seen) / 100 if self._seen else None
