"""CPU cost per sample of each step of a loader, measured by calling the loader's own functions."""

import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from feedline.pipelines.compare.cpu_time import tree_cpu_s
from feedline.pipelines.compare.parts import made
from feedline.pipelines.compare.result import Stages
from feedline.pipelines.loaders.protocol import Loader, LoaderKind, Task
from feedline.pipelines.loaders.random_state import OwnRandomState
from feedline.pipelines.loaders.samples import Samples
from feedline.pipelines.loaders.spdl_threads import SpdlLoader, collate
from feedline.pipelines.loaders.workers import WorkerLoader, to_device
from feedline.pipelines.probes.measure import one_core
from feedline.profiler.pool import sheltered

_SAMPLES = 64
_WARM = 8  # samples before them: libraries load, buffers grow
_CARRIED = 256  # samples sent through a DataLoader of ready ones


class _Ready(Dataset[tuple[torch.Tensor, int]]):
    """The same sample repeatedly."""

    def __init__(self, image: torch.Tensor, times: int) -> None:
        self.image, self.times = image, times

    def __len__(self) -> int:
        return self.times

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.image, index


def stages_of(kind: LoaderKind, task: Task) -> Stages | str:
    """Time each step over some samples, spread over all classes; or say why there are no steps to call."""
    with made(kind, task) as loader:
        samples = loader.samples
        if isinstance(samples, str):
            return samples
        indices = random.Random(0).choices(range(len(samples)), k=_WARM + _SAMPLES)
        with one_core(), OwnRandomState(0):
            read_s, decode_s, augment_s = _steps(samples, indices)
            image = samples[indices[0]][0]
        return Stages(read_s, decode_s, augment_s, _transport_s(loader, image, task))


def _steps(samples: Samples, indices: list[int]) -> tuple[float, float, float]:
    spent = [0.0, 0.0, 0.0]
    for number, index in enumerate(indices):
        if number == _WARM:
            spent = [0.0, 0.0, 0.0]
        data, read_s = _timed(samples.read, index)
        image, decode_s = _timed(samples.decode, data)
        _, augment_s = _timed(samples.augment, image)
        spent = [total + step for total, step in zip(spent, (read_s, decode_s, augment_s), strict=True)]
    return spent[0] / _SAMPLES, spent[1] / _SAMPLES, spent[2] / _SAMPLES


def _timed(step: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    """The result of a step, and its CPU seconds over all threads."""
    before = time.process_time()
    made_of_it = step(*arguments)
    return made_of_it, time.process_time() - before


def _transport_s(loader: Loader, image: torch.Tensor, task: Task) -> float:
    """Collate, send, receive and finish batches of a ready sample, with the loader's own functions."""
    size = task.settings.batch_size
    batches = max(2, _CARRIED // size)
    if isinstance(loader, SpdlLoader):  # threads of one process have nothing to send
        with one_core():
            spent = [_timed(lambda: loader.finish(collate([(image, 0)] * size)[0]))[1] for _ in range(batches)]
        return statistics.median(spent) / size
    assert isinstance(loader, WorkerLoader)
    ready = _Ready(image, (batches + 1) * size)
    workers = min(1, task.settings.workers)
    carrying = DataLoader(ready, size, num_workers=workers, collate_fn=loader.collate, generator=torch.Generator())
    cpu_s = 0.0
    with sheltered():
        received = iter(carrying)
    for number, (images, _) in enumerate(received):
        loader.finish(to_device(images, loader.device))
        if number == 0:
            cpu_s = -tree_cpu_s()
    return (cpu_s + tree_cpu_s()) / (batches * size)
