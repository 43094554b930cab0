"""The result of a comparison of loaders."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from feedline.pipelines.translate.difference import Difference

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Part:
    """A part of an epoch, run by one loader in one round.

    Attributes:
        samples, wall_s: between two batches that came out, after the first ones that were ready in advance.
        cpu_s: CPU seconds in that time of this process and of all below it.
        main_s: of them, those of the main thread: what it costs to receive a batch.
        gpu_s: seconds in that time in which any kernel ran on the GPU (NVML's utilization); None: no GPU.
        first_batch_s: from making the loader until its first batch.
    """

    samples: int
    wall_s: float
    cpu_s: float
    main_s: float
    first_batch_s: float
    gpu_s: float | None = None


@dataclass(frozen=True)
class Stages:
    """CPU seconds per sample of one loader's own functions, called in one process on one core.

    Attributes:
        transport: collating a batch, bringing it to the main process (both sides together), and making float32 of uint8 there.
    """

    read: float
    decode: float
    augment: float
    transport: float


@dataclass(frozen=True)
class Pixels:
    """Differences between a loader's images and those of pillow-v1, random parameters fixed, in gray levels (0 to 255).

    Attributes:
        largest_mean: of the one image that differs most.
        outside: why they are not taken for equal; empty: they are.
    """

    images: int
    mean: float
    largest_mean: float
    max: float
    outside: str = ""


@dataclass(frozen=True)
class Epoch:
    """A whole epoch of a loader.

    Attributes:
        wrong: which samples came twice or not at all; empty: each came exactly once.
    """

    samples: int
    wall_s: float
    wrong: str = ""


@dataclass(frozen=True)
class Compute:
    """A training step of the user's model on batches in memory.

    Attributes:
        step_s: wall seconds per sample: forward, loss, backward, optimizer.
        cpu_s: CPU seconds per sample of this process.
    """

    step_s: float
    cpu_s: float


@dataclass(frozen=True)
class Feeds:
    """The predicted rate of a training with a loader.

    Attributes:
        samples_per_s: the smallest of the limits.
        limit: ``loader``, ``compute`` or ``cores``.
        limits: each limit in samples/s, by name.
        low, high: of samples_per_s, from the intervals of the loader's medians.
    """

    samples_per_s: float
    limit: str
    limits: dict[str, float]
    low: float
    high: float


@dataclass
class Row:
    """All results of one loader.

    Attributes:
        why: why it could not be measured, or not to the end; empty: it was.
        stages_why: why its stages are not timed separately.
        missing: operations of the user's transform that it leaves out.
        parts: one per round.
    """

    name: str
    about: str
    why: str = ""
    missing: tuple[str, ...] = ()
    parts: list[Part] = field(default_factory=list)
    stages: Stages | None = None
    stages_why: str = ""
    epoch: Epoch | None = None
    pixels: Pixels | None = None
    pixels_why: str = ""
    feeds: Feeds | None = None

    @property
    def measured(self) -> bool:
        return not self.why and bool(self.parts)

    @property
    def rates(self) -> list[float]:
        """Samples/s of each round."""
        return [part.samples / part.wall_s for part in self.parts]

    @property
    def cpu_each(self) -> list[float]:
        """CPU seconds per sample of each round."""
        return [part.cpu_s / part.samples for part in self.parts]

    @property
    def main_each(self) -> list[float]:
        """The same of the main thread."""
        return [part.main_s / part.samples for part in self.parts]

    @property
    def samples_per_s(self) -> float:
        return statistics.median(self.rates)

    @property
    def cpu_s(self) -> float:
        """CPU seconds per sample."""
        return statistics.median(self.cpu_each)

    @property
    def main_s(self) -> float:
        """CPU seconds per sample of the main thread."""
        return statistics.median(self.main_each)

    @property
    def gpu_s(self) -> float | None:
        """GPU seconds per sample."""
        known = [part.gpu_s / part.samples for part in self.parts if part.gpu_s is not None]
        return statistics.median(known) if known else None

    @property
    def cores(self) -> float:
        """How many cores it keeps busy."""
        return statistics.median(part.cpu_s / part.wall_s for part in self.parts)

    @property
    def first_batch_s(self) -> float:
        return statistics.median(part.first_batch_s for part in self.parts)

    @property
    def faultless(self) -> bool:
        """Whether it was measured, delivers every sample once, lacks nothing, and its images equal those of the user's own transform."""
        return self.measured and not self.missing and not (self.epoch and self.epoch.wrong) and not (self.pixels and self.pixels.outside)


@dataclass(frozen=True)
class Comparison:
    """Attributes:
    rows: in the order in which they were asked for.
    photos: of how many files the dataset consists after those that are left out.
    left_out: kind of problem -> paths.
    cache: ``warm``: every file was read once before; ``cold``: the page cache was emptied of them before every part.
    cores: that this process may use.
    choice: which loader to take, and why.
    takes: its name; empty: none is better than the present one.
    lines: of a program that trains with it; empty where ``takes`` is.
    operations: each operation of the transform in each library; ``operations_why``: why there are none.
    """

    rows: Sequence[Row]
    photos: int
    sample_bytes: float
    left_out: dict[str, list[str]]
    settings: dict[str, object]
    cache: str
    cores: float
    compute: Compute | None
    choice: str
    operations: list[Difference] = field(default_factory=list)
    operations_why: str = ""
    machine: dict[str, object] = field(default_factory=dict)
    takes: str = ""
    lines: list[str] = field(default_factory=list)

    @property
    def measured(self) -> list[Row]:
        return [row for row in self.rows if row.measured]
