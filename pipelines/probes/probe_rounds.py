"""Measures several things in alternation, so that changes in the machine's speed affect all alike.

Every round measures each thing once, forwards and backwards in turn. A thing's rate is the median
of its rounds, its spread the smallest and the largest. CPU seconds are those of the whole process:
a library's threads count, and time that another process took does not.
"""

import os
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from feedline.pipelines.photos import Photo, Photos
from feedline.profiler import clock, masks
from feedline.profiler.ceilings import Ceiling

if TYPE_CHECKING:
    from torch import nn

    from feedline.pipelines.translate.recipe import Recipe

process_cpu_ns = time.process_time_ns  # tests put a fake in its place, as in that of clock.wall_ns


class CannotMeasure(Exception):
    """Something cannot be measured here, or was fast because it did not do its work.

    The text says which.
    """


@dataclass(frozen=True)
class ProbePlan:
    """How long to measure.

    Attributes:
        rounds: of everything that is compared.
        seconds: of one thing in one round, at least; one pass is always finished.
        files: of the user's dataset, at most.
        pixels: of these files together, at most, where images are decoded or changed; at least four
            files are taken.
        scratch_bytes: of the file that is written to be read.
        readers: processes that read at once.
    """

    rounds: int = 5
    seconds: float = 0.25
    files: int = 100
    pixels: float = 40e6
    scratch_bytes: int = 256 << 20
    readers: tuple[int, ...] = (1, 4, 16)

    @classmethod
    def quick(cls) -> "ProbePlan":
        """Make a plan for coarse figures within seconds."""
        return cls(
            rounds=3, seconds=0.04, files=20, pixels=4e6, scratch_bytes=32 << 20, readers=(1, 4)
        )


@dataclass(frozen=True)
class TimedPass:
    """A pass that timed itself, in another process or on a device with its own clock."""

    units: float
    wall_s: float
    cpu_s: float


def _nothing() -> None:
    """Prepare nothing."""


@dataclass(frozen=True)
class Workload:
    """One thing to measure.

    Attributes:
        run: one pass; returns what it did: a number of samples, bytes or FLOP, or ``TimedPass``.
            Raises CannotMeasure, or anything.
        prepare: before every pass; not timed.
    """

    run: Callable[[], "float | TimedPass"]
    prepare: Callable[[], object] = _nothing


@dataclass(frozen=True)
class MeasuredRate:
    """The rounds of one thing.

    Attributes:
        rates: units per second of wall time, one a round.
        cpu_s: CPU seconds of the process per unit: the median of the rounds.
    """

    rates: tuple[float, ...]
    cpu_s: float

    @property
    def value(self) -> float:
        """The median rate."""
        return statistics.median(self.rates)

    @property
    def low(self) -> float:
        """The lowest rate."""
        return min(self.rates)

    @property
    def high(self) -> float:
        """The highest rate."""
        return max(self.rates)


def measure_in_turns(
    works: Mapping[str, Workload], plan: ProbePlan
) -> dict[str, MeasuredRate | str]:
    """Measure everything in rounds, after one pass of each that does not count.

    Returns:
        By name, in the order given: its rate, or why there is none. One that fails is dropped; the
        others continue.
    """
    failed: dict[str, str] = {}
    rounds: dict[str, list[TimedPass]] = {name: [] for name in works}
    for number in range(-1, plan.rounds):
        for name in list(works) if number % 2 == 0 else reversed(list(works)):
            if name in failed:
                continue
            try:
                timed = run_round(works[name], 0.0 if number < 0 else plan.seconds)
            except Exception as error:
                failed[name] = error_reason(error)
                continue
            if number >= 0:
                rounds[name].append(timed)
    return {
        name: failed[name] if name in failed else summarise_rounds(rounds[name]) for name in works
    }


def run_round(work: Workload, seconds: float) -> TimedPass:
    """Repeat passes until they took ``seconds`` in total; preparing them does not count."""
    units = wall_s = cpu_s = 0.0
    while True:
        work.prepare()
        wall, cpu = clock.wall_ns(), process_cpu_ns()
        done = work.run()
        if not isinstance(done, TimedPass):
            cpu, wall = process_cpu_ns() - cpu, clock.wall_ns() - wall
            done = TimedPass(done, wall * 1e-9, cpu * 1e-9)
        units, wall_s, cpu_s = units + done.units, wall_s + done.wall_s, cpu_s + done.cpu_s
        if wall_s >= seconds:
            return TimedPass(units, wall_s, cpu_s)


def summarise_rounds(rounds: list[TimedPass]) -> MeasuredRate:
    """Combine the rounds of one thing."""
    return MeasuredRate(
        tuple(timed.units / max(timed.wall_s, 1e-9) for timed in rounds),
        statistics.median(timed.cpu_s / timed.units for timed in rounds),
    )


def error_reason(error: BaseException) -> str:
    """Write an error as a reason in a table: one line."""
    lines = str(error).strip().splitlines()
    first = lines[0].strip() if lines else ""
    return masks.text(
        first
        if isinstance(error, CannotMeasure) and first
        else f"{type(error).__name__}: {first}".rstrip(": ")
    )


def as_ceiling(
    name: str,
    rate: MeasuredRate | str,
    *,
    unit: str = "samples/s",
    per: str = "machine",
    source: str = "",
    settings: dict[str, object] | None = None,
) -> Ceiling:
    """Return a ceiling from a measurement, or from the reason why there is none.

    The part is the text before the slash in the name.
    """
    part = name.split("/", 1)[0]
    about = settings or {}
    if isinstance(rate, str):
        return Ceiling(
            name, part, None, unit=unit, per=per, source=source, settings=about, why=rate
        )
    return Ceiling(
        name, part, rate.value, rate.low, rate.high, unit, per, rate.cpu_s, source, about
    )


def require_gpu() -> None:
    """Check that there is a CUDA device.

    Raises:
        CannotMeasure: there is none.
    """
    import torch

    if not torch.cuda.is_available():
        raise CannotMeasure("needs a CUDA device, and there is none")


@contextmanager
def on_one_core() -> Iterator[None]:
    """Keep this thread, and threads started in it, on one core.

    The existing threads of torch and OpenCV run elsewhere meanwhile.
    """
    import torch

    allowed = os.sched_getaffinity(0)
    threads = torch.get_num_threads()
    opencv = _opencv_threads()
    try:
        os.sched_setaffinity(0, {max(allowed)})
        torch.set_num_threads(1)
        _set_opencv_threads(None if opencv is None else 0)
        yield
    finally:
        os.sched_setaffinity(0, allowed)
        torch.set_num_threads(threads)
        _set_opencv_threads(opencv)


def _opencv_threads() -> int | None:
    try:
        import cv2
    except (ImportError, OSError):
        return None
    return int(cv2.getNumThreads())


def _set_opencv_threads(number: int | None) -> None:
    if number is not None:
        import cv2

        cv2.setNumThreads(number)


@dataclass(frozen=True)
class Subject:
    """What is probed: the user's files, transforms and model, and how long to measure.

    Attributes:
        photos: None: no dataset was given.
        transform: the user's own, PIL image -> tensor; ``recipe`` is the same as operations.
        model: the user's, on the CPU.
        device: that the model is to run on: ``cpu`` or ``cuda:0``.
        folder: whose disk is probed.
    """

    photos: Photos | None = None
    transform: Any = None
    recipe: "Recipe | None" = None
    model: "nn.Module | None" = None
    batch_size: int = 32
    device: str = "cpu"
    folder: Path = field(default_factory=Path.cwd)
    plan: ProbePlan = ProbePlan()

    @property
    def sample(self) -> Sequence[Photo]:
        """At most ``plan.files`` photos, spread over all classes; the same at every call."""
        if self.photos is None:
            return ()
        photos = self.photos.photos
        return (
            photos
            if len(photos) <= self.plan.files
            else random.Random(0).sample(photos, self.plan.files)
        )

    @property
    def images(self) -> Sequence[Photo]:
        """The first images of ``sample`` within ``plan.pixels`` in total, at least four."""
        sums = accumulate(photo.width * photo.height for photo in self.sample)
        return [
            photo
            for number, (photo, pixels) in enumerate(zip(self.sample, sums))
            if number < 4 or pixels <= self.plan.pixels
        ]
