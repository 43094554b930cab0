"""The recorder that the taps of this process write to.

There is one ``recorder`` per process, as there is one training.
"""

import os
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Protocol

from feedline.profiler import clock, nvtx_ranges
from feedline.profiler.events import Flag, Stage
from feedline.profiler.store.layout import STAGES
from feedline.profiler.store.segment import Segment


class _GpuTimer(Protocol):
    """Times stages on a GPU (taps/gpu_timer.py)."""

    def begin(self, stage: Stage) -> Any: ...

    def end(self, pair: Any, stage: Stage, start: int) -> None: ...

    def end_copy(self, pair: Any, start: int, source: Any, target: Any) -> None: ...


class _FlopObserver(Protocol):
    """Counts the floating-point operations of a step (taps/flops.py)."""

    def begin(self, module: Any) -> Any: ...

    def end(self, counting: Any, span: "Span") -> None: ...


class _ProfiledSteps(Protocol):
    """Records some steps with torch.profiler (taps/kineto_window.py)."""

    def forwards(self, gradients: bool) -> None: ...


class ConvergenceTap(Protocol):
    """Records losses and gradients (taps/convergence/__init__.py)."""

    updates: int

    @property
    def samples(self) -> int: ...

    @property
    def samples_before(self) -> int: ...

    @property
    def updates_with_pause(self) -> int: ...

    @property
    def samples_of_loaders(self) -> int | None: ...

    @property
    def model(self) -> Any: ...

    def forwarded(self, module: Any, args: Any, kwargs: Any) -> None: ...

    def inferred(self) -> None: ...

    def handed_over(self, samples: int) -> None: ...

    def evaluated(self, value: Any) -> None: ...

    def backward(self, tensors: Any, accumulates: bool = True) -> bool: ...

    def updated(self, optimizer: Any) -> None: ...

    def after_backward(self) -> None: ...

    def reduced(self, tensor: Any, ranks: int, bucket: bool) -> None: ...

    def update(self, optimizer: Any) -> None: ...

    def metric(self, name: str, value: float) -> None: ...

    def paused(self, updates: int, steps: int, batches: int, samples: int) -> None: ...


class _OwnCodeObserver(Protocol):
    """Observes the program's own code between models, backward passes and updates (taps/own_code)."""

    def begins(self, inference: bool = False) -> None: ...

    def ends(self, inference: bool = False) -> None: ...

    def pauses(self) -> None: ...

    def update_begins(self) -> None: ...

    def resumes(self) -> None: ...

    def feeds(self, flags: int, args: Any, kwargs: Any) -> int: ...

    def settled(self) -> int: ...

    def gave(self, flags: int, output: Any) -> None: ...

    def moved(self, source: Any, target: Any, took: int) -> None: ...

    def backward(self) -> None: ...

    def updated(self, last: bool) -> None: ...


class _GraphTap(Protocol):
    """Finds out whether graphs of past steps are kept (taps/graphs.py)."""

    def forwarded(self, output: Any, began: int) -> None: ...

    def backward(self) -> None: ...


class _ContentTap(Protocol):
    """Looks at values of batches, parameters and gradients (taps/contents.py)."""

    def handed_over(self, batch: Any) -> None: ...

    def updating(self, optimizer: Any) -> None: ...


class _LooksAtThreads(Protocol):
    """Finds out what blocked threads wait for (samplers/blocked_threads.py)."""

    def watch(self, makers: list[tuple[int, int]]) -> None: ...


class _WorkerMemory(Protocol):
    """Reads what workers have in memory (samplers/processes.py)."""

    def watch(self, loader: int, workers: Sequence[Any]) -> None: ...


class _SamplingPause(Protocol):
    """A series of steps that are only counted (taps/recording_schedule.py).

    Attributes:
        batches_during_pause: loader -> batches and samples that it handed over.
    """

    segment: Segment
    batches_during_pause: dict[int, list[int]]

    @property
    def updates(self) -> int: ...

    def updated(self, optimizer: Any) -> None: ...

    def handed_over(self, loader: int, samples: int) -> None: ...

    def end(self) -> None: ...

    def finish(self) -> None: ...

    def abandon(self) -> None: ...


class _OptimizerTracker(Protocol):
    """Records where one training may end and the next begin (record/optimizer_tracker.py)."""

    @property
    def began(self) -> int: ...

    def pass_begins(self, segment: Segment) -> None: ...

    def number_of(self, optimizer: Any) -> int: ...


class _Recorder:
    """The destination of all records of this process.

    It also has the parts of feedline that receive events.

    Attributes:
        recordings: how many have begun in this process.
        main: the segment of the training process; None in workers and without a recording, so taps
            of the training test this.
        segment: the segment of this process, worker or not.
        ranges: NVTX ranges, which receive every span; None if no tool listens.
        gpu: receives the training's stages, or None.
        flops: receives forwards and backwards until it has counted a step, or None.
        profiled: receives calls of models while torch.profiler records steps, or None.
        convergence: receives the training's losses, gradients and updates, or None.
        optimizers: receives passes over loaders, or None.
        on_new_training: called before the first update of a training that is not the process's
            first, or None.
        looks: receives the threads that make batches, or None.
        worker_memory: receives loaders' workers, or None.
        own_code: receives the calls between which the program's own code runs, or None.
        graphs: receives what models in training return, or None.
        contents: receives batches and updates, or None.
        samples_stacks: whether loaders' workers are to be sampled (profiler/stacks).
        batch: key of the batch this process works on (events.batch_key).
        loader: number of the loader this process works for.
        made: id and description of the last batch made in this process: without workers, the loader
            hands over the same object.
        pause: set while steps are only counted, when main and segment are None; else None.
        may_pause: whether it may pause. A tap that must see every step clears it.
        asked: whether a loader was asked for a batch since the last update.
        starting: the thread that starts a loader's workers now; 0: none.
        before_taps: called before a recording attaches its taps, to remove hooks that wait for one;
            None: there are none.
        salt: of the marks by which batches of different workers are compared
            (taps/batch_contents.py); empty: none are made.
        every: record one sample in N in detail; None: chosen so that it stays cheap
            (taps/fetch.py).
    """

    def __init__(self) -> None:
        self.recordings = 0
        self.main: Segment | None = None
        self.segment: Segment | None = None
        self.ranges: nvtx_ranges.NvtxRanges | None = None
        self.gpu: _GpuTimer | None = None
        self.flops: _FlopObserver | None = None
        self.profiled: _ProfiledSteps | None = None
        self.convergence: ConvergenceTap | None = None
        self.optimizers: _OptimizerTracker | None = None
        self.on_new_training: Callable[[], None] | None = None
        self.looks: _LooksAtThreads | None = None
        self.worker_memory: _WorkerMemory | None = None
        self.own_code: _OwnCodeObserver | None = None
        self.graphs: _GraphTap | None = None
        self.contents: _ContentTap | None = None
        self.samples_stacks = False
        self.batch = 0
        self.loader = 0
        self.made: tuple[int, Any] = 0, None
        self.every: int | None = None
        self.pause: _SamplingPause | None = None
        self.may_pause = True
        self.asked = False
        self.starting = 0
        self.before_taps: Callable[[], None] | None = None
        self.salt = b""

    def open_main(self, segment: Segment, every: int | None = None) -> None:
        before_taps, self.before_taps = self.before_taps, None
        if before_taps is not None:
            before_taps()
        self.main = self.segment = segment
        self.recordings += 1
        self.may_pause = True
        self._listen(every)

    def resume(self) -> Segment | None:
        """Return ``main``, for events that are always recorded: a pause ends."""
        if self.pause is not None:
            self.pause.end()
        return self.main

    def finish_pause(self) -> Segment | None:
        """Return ``main``, where the training has come to its end, well or not.

        A pause is ended with its last update.
        """
        if self.pause is not None:
            self.pause.finish()
        return self.main

    def always_on_segment(self) -> Segment | None:
        """Return ``main``, for single numbers that are recorded even during a pause."""
        return self.main if self.pause is None else self.pause.segment

    def open_worker(self, segment: Segment, loader: int, every: int | None, salt: bytes) -> None:
        self.main, self.segment, self.loader, self.salt = None, segment, loader, salt
        self._listen(every)

    def _listen(self, every: int | None) -> None:
        """Let a tool that listens see every sample, at its own price."""
        self.ranges = nvtx_ranges.ranges()
        self.every = every if self.ranges is None else 1

    def close(self) -> None:
        """Stop recording in this process; the file is already complete."""
        self.finish_pause()
        segment, self.main, self.segment, self.looks = self.segment, None, None, None
        self.worker_memory = None
        if segment is not None:
            segment.close()

    def forget_after_fork(self) -> None:
        """Detach in the child of a fork: the segment is the parent's.

        A loader's worker opens its own afterwards.
        """
        pause, self.pause = self.pause, None
        if pause is not None:
            pause.abandon()
            pause.segment.forget()
        if self.segment is not None:
            self.segment.forget()
        self.main = self.segment = self.gpu = self.flops = self.convergence = self.optimizers = (
            self.on_new_training
        ) = self.looks = None
        self.own_code = self.graphs = self.contents = self.worker_memory = self.profiled = None


class Inside(threading.local):
    """Whether this thread is inside a call whose parts are not recorded.

    Such are a model, a backward pass, and the making of a batch.

    Attributes:
        takes: called as (original, module, args, kwargs) in place of each module that the outermost
            one calls itself; None: not looked at.
    """

    depth = 0
    takes: Callable[[Any, Any, Any, Any], Any] | None = None


recorder = _Recorder()
inside = Inside()
os.register_at_fork(after_in_child=recorder.forget_after_fork)


#: Whether a stage's CPU time is not used.
_WALL_ONLY = [
    stage in (Stage.SAMPLER, Stage.LOSS, Stage.GRADIENTS, Stage.OPTIMIZER)
    for stage in range(STAGES)
]

#: Whether a stage lies in the program's own code, which is not observed meanwhile.
_ASIDE = [
    stage in (Stage.NEXT, Stage.EPOCH, Stage.CHECKPOINT, Stage.USER, Stage.GRADIENTS, Stage.COMPILE)
    for stage in range(STAGES)
]


class unobserved:
    """``with unobserved():`` the program's own code is not observed meanwhile."""

    def __enter__(self) -> None:
        self._own_code = recorder.own_code
        if self._own_code is not None:
            self._own_code.pauses()

    def __exit__(self, *_: object) -> None:
        if self._own_code is not None:
            self._own_code.resumes()


class Span:
    """``with Span(segment, Stage.X) as span:`` writes one record at the end.

    It does so whether the body raised or not, and never raises itself. ``number``, ``nbytes``,
    ``extra``, ``source`` and ``flags`` may be set in the body.
    """

    __slots__ = (
        "segment",
        "stage",
        "source",
        "number",
        "flags",
        "nbytes",
        "extra",
        "_begun",
        "_name",
        "_gpu",
    )

    def __init__(
        self,
        segment: Segment,
        stage: Stage,
        source: int = 0,
        number: int = 0,
        flags: int = 0,
        name: str | None = None,  # of the NVTX range; None: the stage's
    ) -> None:
        self.segment, self.stage, self.source, self.number, self.flags = (
            segment,
            stage,
            source,
            number,
            flags,
        )
        self.nbytes = self.extra = 0
        self._name = name

    def __enter__(self) -> "Span":
        if _ASIDE[self.stage] and recorder.own_code is not None:
            recorder.own_code.pauses()
        if recorder.ranges is not None:
            recorder.ranges.push(self._name or nvtx_ranges.NAMES[self.stage])
        gpu = recorder.gpu
        self._gpu = None if gpu is None else gpu.begin(self.stage)
        self._begun = clock.now_without_cpu() if _WALL_ONLY[self.stage] else clock.now()
        return self

    @property
    def start(self) -> int:
        """When it began, ns."""
        return self._begun[0]

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        wall, cpu, queue = clock.since(self._begun)
        start = self._begun[0]
        if self._gpu is not None and recorder.gpu is not None:
            recorder.gpu.end(self._gpu, self.stage, start)
        flags = self.flags if kind is None else self.flags | Flag.FAILED
        self.segment.add(
            self.stage,
            start,
            wall,
            cpu,
            queue,
            self.nbytes,
            self.number,
            self.extra,
            self.source,
            flags,
        )
        if recorder.ranges is not None:
            recorder.ranges.pop()
        if _ASIDE[self.stage] and recorder.own_code is not None:
            recorder.own_code.resumes()
