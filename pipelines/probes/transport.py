"""Collating samples in a worker process, and getting batches from it through a multiprocessing queue, as DataLoader does.

``shared``: the worker collates into shared memory (torch's default_collate) and only a handle goes through the queue. ``copied``: a custom
collate left the batch in the worker's own memory, and the queue moves it to shared memory. ``pickled``: an array goes through the pipe.
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

from feedline.pipelines.probes import measure
from feedline.pipelines.probes.measure import Refused, Timed, Work, ceiling, in_turns
from feedline.pipelines.probes.subject import Subject
from feedline.profiler import clock
from feedline.profiler.ceilings import Ceiling
from feedline.profiler.pool import sheltered
from feedline.profiler.samplers.machine import SharedMemory

_DTYPES = {"uint8": torch.uint8, "float32": torch.float32}
_WAYS = ("shared", "copied", "pickled")
_SIZE = (224, 224)  # of an image where the transforms do not say: ImageNet's usual
_IN_FLIGHT = 8  # batches at most; DataLoader's default is 2 per worker
_IN_FLIGHT_BYTES = 128 << 20
_PATIENCE_S = 60.0


@dataclass(frozen=True)
class Shape:
    """A batch: samples, and the height and width of their three channels."""

    samples: int
    height: int
    width: int
    dtype: str

    @property
    def bytes(self) -> int:
        return self.samples * 3 * self.height * self.width * _DTYPES[self.dtype].itemsize

    def made(self) -> list[torch.Tensor]:
        """The same samples in every process."""
        dice = torch.Generator().manual_seed(0)
        size = (3, self.height, self.width)
        return [torch.randint(0, 256, size, generator=dice, dtype=torch.uint8).to(_DTYPES[self.dtype]) for _ in range(self.samples)]


def probe(subject: Subject) -> Iterator[Ceiling]:
    """Collate (per core of a worker) and transport (of the single main process), for uint8 and float32 batches of the user's size."""
    size = (subject.recipe.output_size if subject.recipe else None) or _SIZE
    for dtype in _DTYPES:
        shape = Shape(subject.batch_size, *size, dtype)
        about: dict[str, object] = {"dtype": dtype, "batch_size": shape.samples, "batch_bytes": shape.bytes, "image": list(size)}
        names = [f"collate/{dtype} {way}" for way in _WAYS[:2]] + [f"transport/{dtype} {way}" for way in _WAYS]
        try:
            count = in_flight(shape)
            with worker(shape) as far:
                found = in_turns({name: far.work(name, count) for name in names}, subject.plan)
        except Exception as error:
            found = {name: measure.reason(error) for name in names}
        for name in names:
            way = name.rsplit(" ", 1)[1]
            collates = name.startswith("collate/")
            source = "default_collate in a worker process" if collates else "a worker process, DataLoader's kind of queue, collated before"
            yield ceiling(name, found[name], per="core" if collates else "machine", source=source, settings={**about, "how": way})


def in_flight(shape: Shape) -> int:
    """How many batches fit into shared memory at once.

    Raises:
        Refused: not even one fits.
    """
    shared = SharedMemory()
    try:
        free = shared.read()["shm/free"]
    except OSError:
        free = float("inf")
    count = int(min(_IN_FLIGHT, _IN_FLIGHT_BYTES // shape.bytes, free / 2 // shape.bytes))
    if count < 1 and shape.bytes > free / 2:
        raise Refused(
            f"a batch of {shape.bytes:,} B does not fit in /dev/shm, where {free:,.0f} B are free: give the container more (--shm-size)"
        )
    return max(1, count)


@dataclass(frozen=True)
class FarSide:
    """The main process's handle of the worker process."""

    process: Any
    requests: Any
    results: Any
    expected: torch.Tensor

    def work(self, name: str, count: int) -> Work:
        way = name.rsplit(" ", 1)[1]
        if name.startswith("collate/"):
            return Work(lambda: self._collates(way, count))
        checked: list[bool] = []

        def run() -> Timed:
            timed, batch = self._sends(way, count)
            if not checked and not torch.equal(torch.as_tensor(batch), self.expected):
                raise Refused("the batch that came out of the queue is not the one that was put in")
            checked.append(True)
            return timed

        return Work(run)

    def _collates(self, way: str, count: int) -> Timed:
        self.requests.put(("collate", way, count))
        wall_s, cpu_s = self._answer()
        return Timed(count * len(self.expected), wall_s, cpu_s)

    def _sends(self, way: str, count: int) -> tuple[Timed, Any]:
        self.requests.put(("send", way, count))
        before = self._answer()
        wall, cpu = clock.wall_ns(), measure.process_cpu_ns()
        self.requests.put("go")
        batch = None
        for _ in range(count):
            batch = self._answer()
        wall_s, cpu_s = (clock.wall_ns() - wall) * 1e-9, (measure.process_cpu_ns() - cpu) * 1e-9
        self.requests.put("taken")
        return Timed(count * len(self.expected), wall_s, cpu_s + self._answer() - before), batch

    def _answer(self) -> Any:
        until = time.monotonic() + _PATIENCE_S
        while time.monotonic() < until:
            try:
                return self.results.get(timeout=1.0)
            except queue.Empty:
                if not self.process.is_alive():
                    raise Refused(f"the worker process ended with exit code {self.process.exitcode}") from None
        raise Refused(f"the worker process did not respond for {_PATIENCE_S:.0f} s")


@contextmanager
def worker(shape: Shape) -> Iterator[FarSide]:
    """A worker process, started as DataLoader starts its own, and ended with the block."""
    context = torch.multiprocessing.get_context("spawn" if torch.cuda.is_initialized() else None)
    requests, results = context.Queue(), context.Queue()
    process = context.Process(target=_serve, args=(requests, results, shape), daemon=True)
    with sheltered():
        process.start()
    try:
        yield FarSide(process, requests, results, torch.stack(shape.made()))
    except BaseException:
        process.kill()
        raise
    finally:
        requests.put(None)
        process.join(5.0)
        if process.is_alive():
            process.kill()
            process.join()
        for one in (requests, results):
            one.cancel_join_thread()
            one.close()


def _serve(requests: Any, results: Any, shape: Shape) -> None:
    """The worker: collate on request; hold batches ready and send them when told to."""
    torch.set_num_threads(1)  # as DataLoader's workers do
    samples = shape.made()
    while (request := requests.get()) is not None:
        kind, way, count = request
        wall, cpu = time.perf_counter(), time.process_time()
        if kind == "collate":
            for _ in range(count):
                _collated(samples, way)
            results.put((time.perf_counter() - wall, time.process_time() - cpu))
            continue
        batches = [_collated(samples, way) for _ in range(count)]
        results.put(time.process_time())
        requests.get()
        while batches:
            results.put(batches.pop(0))
        requests.get()
        results.put(time.process_time())


def _collated(samples: list[torch.Tensor], way: str) -> Any:
    if way != "shared":
        batch = default_collate(samples)
        return batch.numpy() if way == "pickled" else batch
    with _as_a_worker():
        batch = default_collate(samples)
    if not batch.is_shared():
        raise Refused("default_collate does not write into shared memory in this version of torch")
    return batch


_NO_DATASET: Any = None


@contextmanager
def _as_a_worker() -> Iterator[None]:
    """default_collate writes into shared memory where get_worker_info() finds something."""
    from torch.utils.data._utils import worker as dataloader

    before = dataloader._worker_info
    dataloader._worker_info = dataloader.WorkerInfo(id=0, num_workers=1, seed=0, dataset=_NO_DATASET)
    try:
        yield
    finally:
        dataloader._worker_info = before
