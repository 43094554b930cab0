"""Times each stage on the GPU with CUDA events.

It never waits for the GPU, and never creates a CUDA context. An event is a mark in a stream of
work, to which the GPU assigns a time when it gets there. A pair around each stage is queued and
read at a later stage, once the GPU has passed both. A stage's time therefore begins when the GPU
has finished earlier work, and includes the gaps in which the host was too slow to launch. Stages on
several streams overlap; a stage inside another (an optimizer's closure) counts in both.

Two clocks: once per step an anchor event is recorded in an idle stream, together with a reading of
the host's clock. A stage starts at the anchor's time + elapsed_time(anchor, begin), but not before
the host launched it. Once per step, because elapsed_time is a float32 of milliseconds: after 1,000
s its resolution is 60 us. cudaEventElapsedTime itself resolves about 0.5 us (CUDA runtime API).

Marking all stages of a step costs the host some hundred microseconds
(docs/measured/gpu-nvidia-h100-80gb-hbm3.md), which a step that is limited by its host pays in full.
After LEARN steps, some are therefore left out at random, so that marking takes about SHARE of the
time.

Not seen: replays of CUDA graphs (no module is called), other threads than the training's, work on a
second GPU of the same process.
"""

import random
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import torch

from feedline.profiler import clock, masks, message
from feedline.profiler.events import Stage
from feedline.profiler.fail_open import reraise_of_handler
from feedline.profiler.message import Message, ReportHook
from feedline.profiler.record.recorder import recorder

NAME, GIVES = "CUDA events", "GPU time of copy, forward, loss, backward, gradients, optimizer"
_TIMED = frozenset(
    (Stage.COPY, Stage.FORWARD, Stage.LOSS, Stage.BACKWARD, Stage.GRADIENTS, Stage.OPTIMIZER)
)
# updates at the start that are all marked: too few to cost much, and what they cost is learned from
# them
_LEARNING_STEPS = 16
_TIMED_SHARE = 0.004  # of the time since; at most twice that
# pairs that the GPU has not passed: some 50 steps; a host that is further ahead is stopped by
# CUDA's own queue
_QUEUE_LENGTH = 256


class _Event(Protocol):
    """The part of torch.cuda.Event that is used."""

    def record(self, stream: Any) -> None: ...

    def query(self) -> bool: ...

    def elapsed_time(self, end: Any) -> float: ...


class Cuda:
    """The part of torch.cuda that is used. Tests without a GPU replace it."""

    def ready(self) -> bool:
        """Return whether the program has a CUDA context and is not capturing a graph.

        Nothing may be recorded into a graph.
        """
        return torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing()

    def device(self) -> int:
        return torch.cuda.current_device()

    def event(self) -> _Event:
        return torch.cuda.Event(enable_timing=True)

    def current_stream(self, device: int) -> Any:
        return torch.cuda.current_stream(device)

    def new_stream(self, device: int) -> Any:
        return torch.cuda.Stream(device)


class Anchor:
    """A moment on both clocks, known once the GPU has passed the event."""

    def __init__(self, event: _Event, stream: Any) -> None:
        self.event = event
        self.host_ns = clock.wall_ns()
        event.record(stream)


class _Pair:
    """The two events of a stage."""

    __slots__ = ("lane", "begin", "end", "anchor", "launched", "stage", "start")

    def __init__(self, lane: "_Lane", begin: _Event, end: _Event) -> None:
        self.lane, self.begin, self.end, self.anchor = lane, begin, end, lane.anchor
        self.launched = clock.wall_ns()
        self.stage, self.start = Stage.GPU, 0


class _Lane:
    """A GPU. Its events may only be recorded in its own streams, and only compared with each other.

    Attributes:
        pending: pairs that have not been read, in the order launched.
        anchor: the last one.
    """

    def __init__(self, cuda: Cuda, device: int) -> None:
        self.device = device
        self.pending: deque[_Pair] = deque()
        self._cuda = cuda
        self._pool: list[_Event] = []
        self._aside = cuda.new_stream(device)
        self.anchor = Anchor(cuda.event(), self._aside)

    def set_anchor(self) -> None:
        self.anchor = Anchor(self._cuda.event(), self._aside)

    def take(self) -> _Pair:
        """Return a new pair, with its first event recorded."""
        begin, end = (self._pool.pop() if self._pool else self._cuda.event() for _ in range(2))
        pair = _Pair(self, begin, end)
        begin.record(self._cuda.current_stream(self.device))
        return pair

    def queue(self, pair: _Pair, stage: Stage, start: int) -> None:
        pair.end.record(self._cuda.current_stream(self.device))
        pair.stage, pair.start = stage, start
        self.pending.append(pair)

    def give_back(self, pair: _Pair) -> None:
        """Return a pair. An event can be recorded again at any time; its previous mark is lost."""
        self._pool += (pair.begin, pair.end)

    def passed(self) -> list[_Pair]:
        """Remove and return the leading pairs that the GPU has passed."""
        pairs = []
        while (
            self.pending
            and self.pending[0].end.query()
            and self.pending[0].begin.query()
            and self.pending[0].anchor.event.query()
        ):
            pairs.append(self.pending.popleft())
        return pairs


class _Ration:
    """Decides which steps are marked; a step ends with an update.

    The marks of a step are taken to cost what those of the cheapest step did. In others they may
    have waited because CUDA's own queue was full, as the next launch would have done in their
    place.

    Attributes:
        marks: whether the current step is.
    """

    def __init__(self) -> None:
        self.marks = True
        self._dice = random.Random(0)  # its own: the program's numbers stay as they are
        self._marked = 0  # steps so far
        self._step_ns, self._cheapest_ns = 0, sys.maxsize
        self._spent_ns = self._since = 0  # since the steps from which the cost is learned

    def used(self, ns: int) -> None:
        self._step_ns += ns

    def next_step(self, now: int) -> None:
        """Note that an update was made.

        The draw keeps every tenth step, say, from being marked always or never.
        """
        if self.marks:
            self._cheapest_ns = min(self._step_ns, self._cheapest_ns)
            self._marked, self._step_ns = self._marked + 1, 0
            if self._marked <= _LEARNING_STEPS:
                self._since = now
                return
            self._spent_ns += self._cheapest_ns
        self.marks = self._spent_ns * self._dice.uniform(0.5, 1.5) <= _TIMED_SHARE * (
            now - self._since
        )


class _StageTimer:
    """Times stages of the training's thread on the GPU of the last copy, else on the current one.

    It never raises.

    Args:
        report: called when the first GPU is used, and with the reason where something fails.
    """

    def __init__(self, report: ReportHook, cuda: Cuda | None = None) -> None:
        self.lost = 0
        self._report = report
        self._cuda = cuda or Cuda()
        self._lanes: dict[int, _Lane] = {}
        self._device: int | None = None
        self._thread: int | None = None
        self._ration = _Ration()

    def begin(self, stage: Stage) -> _Pair | None:
        """Mark the beginning of a stage; None if it cannot be timed, or its step is left out."""
        if stage not in _TIMED:
            return None
        try:
            if self._elsewhere():
                return None
            now = clock.wall_ns()
            if not self._ration.marks:
                if stage is Stage.OPTIMIZER:
                    self._ration.next_step(now)
                return None
            if not self._cuda.ready():
                return None
            lane = self._lane(self._cuda.device() if self._device is None else self._device)
            self._read(lane)
            if len(lane.pending) >= _QUEUE_LENGTH:
                self.lost += 1
                return None
            pair = lane.take()
            self._ration.used(clock.wall_ns() - now)
            return pair
        except Exception as error:
            reraise_of_handler()
            self._give_up(error)
            return None

    def end(self, pair: _Pair, stage: Stage, start: int) -> None:
        """Mark the end of a stage.

        Args:
            pair: its events.
            stage: what it turned out to be.
            start: of its record, ns.
        """
        now = clock.wall_ns()
        try:
            if not self._cuda.ready():  # a capture began inside
                self.lost += 1
                return
            pair.lane.queue(pair, stage, start)
            if stage is Stage.OPTIMIZER:
                pair.lane.set_anchor()
            self._ration.used(clock.wall_ns() - now)
            if stage is Stage.OPTIMIZER:
                self._ration.next_step(now)
        except Exception as error:
            reraise_of_handler()
            self._give_up(error)

    def end_copy(
        self, pair: _Pair | None, start: int, source: torch.device, target: torch.device
    ) -> None:
        """Mark the end of a ``Tensor.to``.

        Not recorded if it stayed on its device or went to another GPU than expected.
        """
        if source != target and target.type == "cuda":
            self._device = target.index
        if pair is None:
            return
        on = target if target.type == "cuda" else source
        if source != target and on.type == "cuda" and on.index == pair.lane.device:
            self.end(pair, Stage.COPY, start)
        else:
            pair.lane.give_back(pair)

    def stop(self) -> None:
        """Read the pairs that the GPU has passed.

        The rest is lost, because waiting would synchronise.
        """
        if recorder.gpu is not self:
            return
        recorder.gpu = None
        try:
            for lane in self._lanes.values():
                if self._cuda.ready():
                    self._read(lane)
                self.lost += len(lane.pending)
        except Exception as error:
            reraise_of_handler()
            self._give_up(error)
            return
        if self._lanes:
            self._report(NAME, True, f"{GIVES}; {self.lost} not read" if self.lost else GIVES)
        else:
            self._report(NAME, False, Message("the program never used CUDA", message.CUDA_NOT_USED))

    def _elsewhere(self) -> bool:
        here = threading.get_ident()
        if self._thread is None:
            self._thread = here
        return here != self._thread

    def _lane(self, device: int) -> _Lane:
        lane = self._lanes.get(device)
        if lane is None:
            lane = self._lanes[device] = _Lane(self._cuda, device)
            self._report(NAME, True, GIVES)
        return lane

    def _read(self, lane: _Lane) -> None:
        for pair in lane.passed():
            segment = recorder.main
            if segment is not None:
                begun = pair.anchor.host_ns + round(
                    pair.anchor.event.elapsed_time(pair.begin) * 1e6
                )
                took = max(round(pair.begin.elapsed_time(pair.end) * 1e6), 0)
                segment.add(
                    Stage.GPU, max(begun, pair.launched), took, number=pair.start, extra=pair.stage
                )
            lane.give_back(pair)

    def _give_up(self, error: Exception) -> None:
        recorder.gpu = None
        self._report(NAME, False, masks.error(error))


def attach(report: ReportHook) -> Callable[[], None]:
    """Time stages from the program's first use of CUDA.

    Returns:
        What undoes it. Holding it keeps a forked child, which may not call CUDA, from freeing the
        events.
    """
    if not torch.backends.cuda.is_built():
        report(NAME, False, Message("this torch is built without CUDA", message.NO_CUDA))
        return lambda: None
    recorder.gpu = timer = _StageTimer(report)
    return timer.stop
