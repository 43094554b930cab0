"""Times a loader: a whole epoch, a part, its stages; and a training step without a loader."""

import math
import os
import random
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from feedline.pipelines.compare.comparison_result import Compute, EpochPart, StageCosts
from feedline.pipelines.loaders import pillow_loaders
from feedline.pipelines.loaders.image_samples import ImageSamples
from feedline.pipelines.loaders.protocol import LoaderKind, LoadTask, ReadyLoader
from feedline.pipelines.loaders.spdl_loader import SpdlLoader, collate_samples
from feedline.pipelines.loaders.workers import WorkerLoader, end_workers, to_device
from feedline.pipelines.photos import Photos
from feedline.pipelines.probes.probe_rounds import (
    CannotMeasure,
    MeasuredRate,
    ProbePlan,
    Workload,
    error_reason,
    measure_in_turns,
    on_one_core,
)
from feedline.pipelines.probes.read_speed import cached_share, filesystem
from feedline.pipelines.probes.training_step import Step
from feedline.pipelines.random_states import OwnRandomState
from feedline.profiler.errors import FeedlineError, UserCodeError
from feedline.profiler.pool import sheltered
from feedline.profiler.samplers.processes import descendants

#: Batches per worker that can be ready: two in advance, and the one in progress.
AHEAD_PER_WORKER = 3
#: Share of the files from which on they count as cached; as little as is left, as not cached.
MOSTLY = 0.9
_STEP_PLAN = ProbePlan(rounds=5, seconds=0.5)
_TIMED_SAMPLES = 64
_WARMUP_SAMPLES = 8  # samples before them: libraries load, buffers grow
_SENT_SAMPLES = 256  # samples sent through a DataLoader of ready ones
_FILES_ASKED_FOR = 48  # in the page cache or not
_OWN_CACHE = ("zfs",)  # files that are read lie in a cache of its own, of which Linux knows nothing
# what torch says on a GPU, of cuBLAS and on the CPU
_OUT_OF_MEMORY = ("out of memory", "ALLOC_FAILED", "can't allocate memory", "MemoryError")


def _tree_cpu_s() -> float:
    """Return the CPU seconds so far of this process and all of its descendants.

    Of these, children that ended count once they were waited for.
    """
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (
        time.process_time()
        + ended.ru_utime
        + ended.ru_stime
        + sum(map(_process_cpu_s, descendants(os.getpid())))
    )


def _process_cpu_s(pid: int) -> float:
    """Return the CPU seconds of all threads of a process, those that ended too.

    In nanoseconds' resolution (/proc/PID/stat counts in hundredths of a second).
    """
    try:
        # clock_getcpuclockid(3): MAKE_PROCESS_CPUCLOCK(pid, CPUCLOCK_SCHED)
        return time.clock_gettime(~pid << 3 | 2)
    except OSError:  # it ended meanwhile
        return 0.0


@contextmanager
def open_loader(kind: LoaderKind, task: LoadTask) -> Iterator[ReadyLoader]:
    """Make a loader that is closed at the end of the block."""
    loader = kind.make(task)
    try:
        yield loader
    finally:
        loader.close()


def run_part(kind: LoaderKind, task: LoadTask, number: int, seconds: float) -> EpochPart:
    """Run a fresh loader for some time, after skipping batches that were made in advance.

    The time ends with a batch whose number is a multiple of the number of workers: they finish
    theirs at about the same time.

    Raises:
        ValueError: the epoch is too short to measure anything.
    """
    start = time.perf_counter()
    with open_loader(kind, task) as loader:
        batches = loader.epoch(number)
        drawn = sum(1 for _ in islice(batches, 1))
        _finished(task)
        first_batch_s = time.perf_counter() - start
        drawn += sum(1 for _ in islice(batches, _batches_ahead(task) - 1))
        _finished(task)
        gpu = _GpuShare(task.settings.device)
        wall, cpu, main = time.perf_counter(), _tree_cpu_s(), time.thread_time()
        samples = 0
        for count, batch in enumerate(batches, 1):
            samples += len(batch.index)
            gpu.look()
            if count % max(1, task.settings.workers) == 0 and time.perf_counter() - wall >= seconds:
                break
        _finished(task)
        wall, cpu, main = time.perf_counter() - wall, _tree_cpu_s() - cpu, time.thread_time() - main
    if not samples:
        raise ValueError(
            f"an epoch of {drawn} batches is too short to measure: use more images or smaller "
            f"batches"
        )
    return EpochPart(
        samples, wall, cpu, main, first_batch_s, None if gpu.share is None else gpu.share * wall
    )


def _batches_ahead(task: LoadTask) -> int:
    """Return how many batches can be ready in advance.

    At most a third of an epoch.
    """
    third = len(task.photos) // task.settings.batch_size // 3
    return max(1, min(AHEAD_PER_WORKER * task.settings.workers, third))


def _finished(task: LoadTask) -> None:
    """Wait for the device."""
    if task.settings.device != "cpu":
        torch.cuda.synchronize(task.settings.device)


def share_in_page_cache(photos: Photos) -> float | None:
    """Return the share of some of the files in the page cache; None: Linux does not tell."""
    if filesystem(photos.root) in _OWN_CACHE:
        return None
    return cached_share(photo.path for photo in photos.spread(_FILES_ASKED_FOR))


class _GpuShare:
    """Samples the GPU's utilisation.

    That is the share of NVML's last sample period in which any kernel ran.
    """

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


def prepare_training_step(model: Any, task: LoadTask) -> Callable[[], Compute]:
    """Try one step on a batch of the user's images.

    Returns:
        A function that measures it.

    Raises:
        UserCodeError: the model cannot be trained on such a batch.
        DataError: an image cannot be read.
    """
    samples, _ = pillow_loaders.reference_samples(task)
    size = min(task.settings.batch_size, len(samples))
    with OwnRandomState(0):
        try:
            batch = torch.stack([samples[index][0] for index in range(size)])
            step = Step.of(model, batch, task.settings.device)
        except FeedlineError:
            raise
        except Exception as error:
            reason = error_reason(error)
            if not isinstance(error, CannotMeasure):
                reason = f"the model's training step fails: {reason}"
            raise _step_error(reason, size, task.settings.device) from error
    return lambda: _measure_training_step(step)


def _step_error(reason: str, size: int, device: str) -> UserCodeError:
    """Return the error of a training step on so many images, with a way out if there is one."""
    if any(words in reason for words in _OUT_OF_MEMORY):
        reason = (
            f"a training step on {size} images needs more memory than {device} has left: use a "
            f"smaller --batch-size"
        )
    return UserCodeError(reason)


def _measure_training_step(step: Step) -> Compute:
    """Run the step for some seconds.

    Raises:
        UserCodeError: it fails.
    """
    with OwnRandomState(0):
        rate = measure_in_turns({"model": Workload(step.whole)}, _STEP_PLAN)["model"]
    if not isinstance(rate, MeasuredRate):
        reason = f"the model's training step fails: {rate}"
        raise _step_error(reason, len(step), str(step.batch.device))
    return Compute(1 / rate.value, rate.cpu_s)


class _RepeatedSample(Dataset[tuple[torch.Tensor, int]]):
    """A dataset of one sample, repeated."""

    def __init__(self, image: torch.Tensor, times: int) -> None:
        self.image, self.times = image, times

    def __len__(self) -> int:
        return self.times

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.image, index


def time_stages(kind: LoaderKind, task: LoadTask) -> StageCosts | str:
    """Time each step over some samples, spread over all classes.

    Returns:
        The costs, or why there are no steps to call.
    """
    with open_loader(kind, task) as loader:
        samples = loader.samples
        if isinstance(samples, str):
            return samples
        indices = random.Random(0).choices(range(len(samples)), k=_WARMUP_SAMPLES + _TIMED_SAMPLES)
        with on_one_core(), OwnRandomState(0):
            read_s, decode_s, augment_s = _steps(samples, indices)
            image = samples[indices[0]][0]
        return StageCosts(read_s, decode_s, augment_s, _transport_s(loader, image, task))


def _steps(samples: ImageSamples, indices: list[int]) -> tuple[float, float, float]:
    spent = [0.0, 0.0, 0.0]
    for number, index in enumerate(indices):
        if number == _WARMUP_SAMPLES:
            spent = [0.0, 0.0, 0.0]
        data, read_s = _timed(samples.read, index)
        image, decode_s = _timed(samples.decode, data)
        _, augment_s = _timed(samples.augment, image)
        spent = [
            total + step for total, step in zip(spent, (read_s, decode_s, augment_s), strict=True)
        ]
    return spent[0] / _TIMED_SAMPLES, spent[1] / _TIMED_SAMPLES, spent[2] / _TIMED_SAMPLES


def _timed(step: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    """Call a step; returns its result, and its CPU seconds over all threads."""
    before = time.process_time()
    made_of_it = step(*arguments)
    return made_of_it, time.process_time() - before


def _transport_s(loader: ReadyLoader, image: torch.Tensor, task: LoadTask) -> float:
    """Collate, send, receive and finish batches of a ready sample, as the loader does."""
    size = task.settings.batch_size
    batches = max(2, _SENT_SAMPLES // size)
    if isinstance(loader, SpdlLoader):  # threads of one process have nothing to send
        with on_one_core():
            spent = [
                _timed(lambda: loader.finish(collate_samples([(image, 0)] * size)[0]))[1]
                for _ in range(batches)
            ]
        return statistics.median(spent) / size
    assert isinstance(loader, WorkerLoader)
    workers = min(1, task.settings.workers)
    carrying = DataLoader(
        _RepeatedSample(image, batches * size),
        size,
        num_workers=workers,
        collate_fn=loader.collate,
        persistent_workers=workers > 0,
        generator=torch.Generator(),
    )
    try:
        _receive_all(carrying, loader)  # the worker starts, and buffers grow
        before = _tree_cpu_s()
        # the worker waits before and after an epoch: all of its work for these batches counts
        _receive_all(carrying, loader)
        return (_tree_cpu_s() - before) / (batches * size)
    finally:
        end_workers(carrying)


def _receive_all(carrying: DataLoader[tuple[torch.Tensor, int]], loader: WorkerLoader) -> None:
    """Receive and finish the batches of one epoch."""
    with sheltered():
        received = iter(carrying)
    for images, _ in received:
        loader.finish(to_device(images, loader.device))
