"""Collating in a worker process, and getting batches from it through a queue, as DataLoader does.

``shared``: the worker collates into shared memory (torch's default_collate) and only a handle goes
through the queue. ``copied``: a custom collate left the batch in the worker's own memory, and the
queue moves it to shared memory. ``pickled``: an array goes through the pipe.
"""

import queue
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.multiprocessing
from torch.utils.data import default_collate

from feedline.pipelines.probes import probe_rounds
from feedline.pipelines.probes.probe_rounds import (
    CannotMeasure,
    Subject,
    TimedPass,
    Workload,
    as_ceiling,
    measure_in_turns,
)
from feedline.profiler import clock
from feedline.profiler.ceilings import Ceiling
from feedline.profiler.pool import sheltered
from feedline.profiler.samplers.machine import SharedMemory

_BATCH_DTYPES = {"uint8": torch.uint8, "float32": torch.float32}
_TRANSPORTS = ("shared", "copied", "pickled")
_DEFAULT_SIZE = (224, 224)  # of an image where the transforms do not say: ImageNet's usual
_MAX_IN_FLIGHT = 8  # batches at most; DataLoader's default is 2 per worker
_MAX_IN_FLIGHT_BYTES = 128 << 20
_ANSWER_TIMEOUT_S = 60.0
_NO_DATASET: Any = None


@dataclass(frozen=True)
class _BatchShape:
    """A batch: samples, and the height and width of their three channels."""

    samples: int
    height: int
    width: int
    dtype: str

    @property
    def bytes(self) -> int:
        """The size of the batch."""
        return self.samples * 3 * self.height * self.width * _BATCH_DTYPES[self.dtype].itemsize

    def made(self) -> list[torch.Tensor]:
        """Make the samples, the same in every process."""
        dice = torch.Generator().manual_seed(0)
        size = (3, self.height, self.width)
        return [
            torch.randint(0, 256, size, generator=dice, dtype=torch.uint8).to(
                _BATCH_DTYPES[self.dtype]
            )
            for _ in range(self.samples)
        ]


def probe(subject: Subject) -> Iterator[Ceiling]:
    """Measure collating (per core of a worker) and transport (of the main process).

    For uint8 and float32 batches of the user's size.
    """
    size = (subject.recipe.output_size if subject.recipe else None) or _DEFAULT_SIZE
    for dtype in _BATCH_DTYPES:
        shape = _BatchShape(subject.batch_size, *size, dtype)
        about: dict[str, object] = {
            "dtype": dtype,
            "batch_size": shape.samples,
            "batch_bytes": shape.bytes,
            "image": list(size),
        }
        names = [f"collate/{dtype} {method}" for method in _TRANSPORTS[:2]] + [
            f"transport/{dtype} {method}" for method in _TRANSPORTS
        ]
        try:
            count = _in_flight(shape)
            with _start_worker(shape) as handle:
                rates = measure_in_turns(
                    {name: handle.work(name, count) for name in names}, subject.plan
                )
        except Exception as error:
            rates = {name: probe_rounds.error_reason(error) for name in names}
        for name in names:
            method = name.rsplit(" ", 1)[1]
            collates = name.startswith("collate/")
            source = (
                "default_collate in a worker process"
                if collates
                else "a worker process, DataLoader's kind of queue, collated before"
            )
            yield as_ceiling(
                name,
                rates[name],
                per="core" if collates else "machine",
                source=source,
                settings={**about, "how": method},
            )


def _in_flight(shape: _BatchShape) -> int:
    """Return how many batches fit into shared memory at once.

    Raises:
        CannotMeasure: not even one fits.
    """
    shared = SharedMemory()
    try:
        free = shared.read()["shm/free"]
    except OSError:
        free = float("inf")
    count = int(min(_MAX_IN_FLIGHT, _MAX_IN_FLIGHT_BYTES // shape.bytes, free / 2 // shape.bytes))
    if count < 1 and shape.bytes > free / 2:
        raise CannotMeasure(
            f"a batch of {shape.bytes:,} B does not fit in /dev/shm, where {free:,.0f} B are "
            f"free: give the container more (--shm-size)"
        )
    return max(1, count)


@dataclass(frozen=True)
class _WorkerHandle:
    """The main process's handle of the worker process."""

    process: Any
    requests: Any
    results: Any
    expected: torch.Tensor

    def work(self, name: str, count: int) -> Workload:
        method = name.rsplit(" ", 1)[1]
        if name.startswith("collate/"):
            return Workload(lambda: self._collates(method, count))
        checked: list[bool] = []

        def run() -> TimedPass:
            timed, batch = self._sends(method, count)
            if not checked and not torch.equal(torch.as_tensor(batch), self.expected):
                raise CannotMeasure(
                    "the batch that came out of the queue is not the one that was put in"
                )
            checked.append(True)
            return timed

        return Workload(run)

    def _collates(self, method: str, count: int) -> TimedPass:
        self.requests.put(("collate", method, count))
        wall_s, cpu_s = self._answer()
        return TimedPass(count * len(self.expected), wall_s, cpu_s)

    def _sends(self, method: str, count: int) -> tuple[TimedPass, Any]:
        self.requests.put(("send", method, count))
        before = self._answer()
        wall, cpu = clock.wall_ns(), probe_rounds.process_cpu_ns()
        self.requests.put("go")
        batch = None
        for _ in range(count):
            batch = self._answer()
        wall_s = (clock.wall_ns() - wall) * 1e-9
        cpu_s = (probe_rounds.process_cpu_ns() - cpu) * 1e-9
        self.requests.put("taken")
        return TimedPass(count * len(self.expected), wall_s, cpu_s + self._answer() - before), batch

    def _answer(self) -> Any:
        until = time.monotonic() + _ANSWER_TIMEOUT_S
        while time.monotonic() < until:
            try:
                return self.results.get(timeout=1.0)
            except queue.Empty:
                if not self.process.is_alive():
                    raise CannotMeasure(
                        f"the worker process ended with exit code {self.process.exitcode}"
                    ) from None
        raise CannotMeasure(f"the worker process did not respond for {_ANSWER_TIMEOUT_S:.0f} s")


@contextmanager
def _start_worker(shape: _BatchShape) -> Iterator[_WorkerHandle]:
    """Start a worker process as DataLoader starts its own; it ends with the block."""
    context = torch.multiprocessing.get_context("spawn" if torch.cuda.is_initialized() else None)
    requests, results = context.Queue(), context.Queue()
    process = context.Process(target=_serve, args=(requests, results, shape), daemon=True)
    with sheltered():
        process.start()
    try:
        yield _WorkerHandle(process, requests, results, torch.stack(shape.made()))
    except BaseException:
        process.kill()
        raise
    finally:
        requests.put(None)
        process.join(5.0)
        if process.is_alive():
            process.kill()
            process.join()
        for channel in (requests, results):
            channel.cancel_join_thread()
            channel.close()


def _serve(requests: Any, results: Any, shape: _BatchShape) -> None:
    """Collate on request; hold batches ready and send them when asked."""
    torch.set_num_threads(1)  # as DataLoader's workers do
    samples = shape.made()
    while (request := requests.get()) is not None:
        kind, method, count = request
        wall, cpu = time.perf_counter(), time.process_time()
        if kind == "collate":
            for _ in range(count):
                _collated(samples, method)
            results.put((time.perf_counter() - wall, time.process_time() - cpu))
            continue
        batches = [_collated(samples, method) for _ in range(count)]
        results.put(time.process_time())
        requests.get()
        while batches:
            results.put(batches.pop(0))
        requests.get()
        results.put(time.process_time())


def _collated(samples: list[torch.Tensor], method: str) -> Any:
    if method != "shared":
        batch = default_collate(samples)
        return batch.numpy() if method == "pickled" else batch
    with _as_a_worker():
        batch = default_collate(samples)
    if not batch.is_shared():
        raise CannotMeasure(
            "default_collate does not write into shared memory in this version of torch"
        )
    return batch


@contextmanager
def _as_a_worker() -> Iterator[None]:
    """Let default_collate write into shared memory.

    It does where get_worker_info() finds something.
    """
    from torch.utils.data._utils import worker as dataloader

    before = dataloader._worker_info
    dataloader._worker_info = dataloader.WorkerInfo(
        id=0, num_workers=1, seed=0, dataset=_NO_DATASET
    )
    try:
        yield
    finally:
        dataloader._worker_info = before
