"""Pauses in recording: short steps are recorded in full only in windows, and counted in between.

Recording a step in full costs about 150 us, however short the step is. Steps below _LONG_NS pay at
most _BUDGET of their own time: after a window the recorder pauses until that is met, at irregular
intervals, so that what the program does every tenth step is sampled as often as it happens. During
a pause ``recorder.main`` is None, which every tap checks first, and the functions that torch calls
most often have torch's own code: only one call after each update remains. It counts steps and from
time to time records their number and duration, in one record per pause, so that a killed process
loses only the last few.

Events that are always recorded end the pause with the step in which they occur: a loader's epoch,
an evaluation (a loader that does not feed the steps, ``Module.eval`` unless every few steps call
it), a checkpoint, a compilation. There are no pauses if a loop of forwards without gradients occurs
unannounced (rollouts of reinforcement learning, which a pause would count as parts of its steps),
if the ranks of a training communicate, in a window of torch.profiler, while operations are counted,
or if a tool listens to NVTX ranges.
"""

import dis
import os
import sys
import threading
from collections import Counter
from types import CodeType, FunctionType
from typing import Any

import numpy as np
import torch

from feedline.profiler import clock
from feedline.profiler.events import UNMEASURED, Stage
from feedline.profiler.fail_open import reraise_of_handler
from feedline.profiler.record.optimizer_alternation import OptimizerAlternation
from feedline.profiler.record.recorder import recorder
from feedline.profiler.store.segment import Segment
from feedline.profiler.taps.patch import Patches
from feedline.profiler.taps.updates import between, updates

_VARIABLE = "FEEDLINE_RESTS"  # an environment variable; 0: every step is recorded in full
_BUDGET = 0.008  # of the steps' own time; a pause itself costs the remainder of 1 %
_LONG_NS = 8_000_000  # steps from here on are always recorded in full
# steps of the first window, which holds the warm-up, and of the others
_FIRST_WINDOW, _WINDOW = (64, 16)
_MIN_PAUSED_STEPS = 64  # steps of a pause
_COST_NS = 150_000  # CPU of recording a step in full, until the run tells
_LEAST_NS = 20_000  # CPU of a step: no training makes one in less
_MAX_PAUSE_NS = 30_000_000_000  # a pause ends, however many steps are left
_STRETCH = 16  # updates that are counted before the clock is read and the counts are written
_LATE_FACTOR = 4  # times what they take otherwise, the last updates of a pause are not what took it
# pauses ended by loaders that did not feed the steps, after which a whole window tells whether they
# do now
_STRANGE = 8
# forwards without gradients between two updates that are a loop of their own, if neither a loader
# nor eval() announces it
_LOOP = 8
# windows after which the pauses are twice as long, then three times: what one more adds to what is
# known falls
_WINDOWS_BEFORE_FEWER = 64


class _Switches:
    """Functions that torch calls in every step, and their code during a pause.

    That is the code of the originals.
    """

    def __init__(self) -> None:
        self._known: list[tuple[FunctionType, CodeType, CodeType]] = []
        self.off = False

    def add(self, function: Any, original: Any) -> None:
        """Add a function.

        If its original's code needs its own globals, it stays replaced and tests ``recorder.main``.
        """
        bare = _bare_code(function, original)
        if bare is not None:
            self._known.append((function, function.__code__, bare))

    def forget(self) -> None:
        self._known.clear()

    def turn_off(self) -> None:
        self.off = True
        for function, _, bare in self._known:
            function.__code__ = bare

    def turn_on(self) -> None:
        if self.off:
            self.off = False
            for function, own, _ in self._known:
                function.__code__ = own


switches = _Switches()


class _StepPattern:
    """Decides update by update which of them make one step.

    It is the same rule as in analysis/measure/boundaries.py.
    """

    def __init__(self) -> None:
        self._step: list[int] = []  # whose updates it has, in order
        self._largest = 0  # updates of a step
        self._last = 0  # which optimizer came last in the largest step
        self._alternation = OptimizerAlternation()

    def begins(self, optimizer: int) -> bool:
        """Return whether this update is the first one of a step."""
        step = [] if recorder.asked else self._step
        self._alternation.saw(optimizer, step[-1] if step else None)
        begins = not step or not self._alternation.same_step(step, optimizer)
        if begins:
            recorder.asked = False
            step = self._step = []
        step.append(optimizer)
        if len(step) >= self._largest:
            self._largest, self._last = len(step), optimizer
        return begins

    @property
    def only(self) -> int:
        """The single optimizer whose updates are all steps; 0 if there are several."""
        return self._last if self._largest == 1 else 0

    def may_end(self, optimizer: int) -> bool:
        """Return whether a step may be over with this update.

        It is the last one of the longest, behind which the next step begins.
        """
        return self._largest <= 1 or (optimizer == self._last and len(self._step) == self._largest)


class _Rest:
    """Counts steps.

    It begins after an update, and ends after another one or on an event that is recorded.

    Attributes:
        segment: that of the training, meanwhile not in ``recorder.main``.
        steps, wall: as told last, ns.
        batches_during_pause: loader -> batches and samples that it handed over. Loaders that do not
            feed the steps are not in it.
    """

    def __init__(
        self,
        schedule: "_RecordingSchedule",
        segment: Segment,
        begun: int,
        steps: int,
        until: int,
        feeding: list[int],
    ) -> None:
        self.segment, self.steps, self.wall = segment, 0, 0
        self.batches_during_pause = {loader: [0, 0] for loader in feeding}
        self._schedule, self._begun, self._length, self._until = schedule, begun, steps, until
        self._updates, self._left = 0, _STRETCH
        self._only = schedule.cycle.only
        self._record = segment.add_for_good(Stage.REST, begun, 0, cpu=schedule.cost_ns)
        self._batch_records = [
            (loader, segment.add_for_good(Stage.TAKEN, begun, 0, source=loader))
            for loader in feeding
        ]

    @property
    def updates(self) -> int:
        """Updates so far."""
        return self._updates + _STRETCH - self._left

    def begin(self) -> None:
        recorder.pause, recorder.main, recorder.segment = self, None, None
        if not _has_compiled():
            switches.turn_off()
            updates.hand_over(self.before, self.updated)

    def before(
        self, optimizer: torch.optim.Optimizer, args: Any = None, kwargs: Any = None
    ) -> None:
        """Note that an update is about to be made.

        One by an optimizer not seen recently is recorded.
        """
        if id(optimizer) not in self._schedule.known:
            self.end()
            updates.notify_before(optimizer)

    def updated(
        self, optimizer: torch.optim.Optimizer, args: Any = None, kwargs: Any = None
    ) -> None:
        """Note that an update was made.

        This is the whole cost of most steps.
        """
        self._left = left = self._left - 1
        if not left or id(optimizer) != self._only:
            self._count_stretch(id(optimizer))

    def _count_stretch(self, optimizer: int) -> None:
        """Write down how far it is, and see whether it is over."""
        self.steps += _STRETCH - self._left - 1 + self._schedule.cycle.begins(optimizer)
        self._updates, self._left, self._only = self.updates, _STRETCH, self._schedule.cycle.only
        now = clock.wall_ns()
        self._write_progress(now)
        if (self.steps >= self._length or now > self._until) and self._schedule.cycle.may_end(
            optimizer
        ):
            self._restore()

    def handed_over(self, loader: int, samples: int) -> None:
        """Count a batch that was asked for in the pause, which may be over by now.

        Never raises.
        """
        counts = self.batches_during_pause[loader]
        counts[0] += 1
        counts[1] += samples
        if recorder.pause is not self:
            for of, place in self._batch_records:
                if of == loader:
                    self.segment.end(place, Stage.TAKEN, *counts)

    def end(self) -> None:
        """End the pause in the middle of a step, for an event that is recorded."""
        if recorder.pause is not self:  # another thread has ended it
            return
        segment, now = self.segment, clock.wall_ns()
        self.steps += _STRETCH - self._left
        self._updates, self._left = self.updates, _STRETCH
        self._write_progress(now)
        self._restore()
        segment.add_for_good(Stage.WOKEN, now, 0)
        self._schedule.resumed_early()

    def finish(self) -> None:
        """End the pause with its last update.

        The program makes no more, and what it did since then, perhaps for long, was no step. The
        clock was last read before at most _STRETCH updates; where these took far longer than others,
        what came after them did.
        """
        if recorder.pause is not self:
            return
        now, last_read, updates = clock.wall_ns(), self._begun + self.wall, _STRETCH - self._left
        expected = int(
            updates * (self.wall / self._updates if self._updates else self._schedule.full_ns)
        )
        self.steps += updates
        self._updates, self._left = self.updates, _STRETCH
        self._write_progress(
            now if now - last_read <= _LATE_FACTOR * expected else last_read + expected
        )
        self._restore()

    def _restore(self) -> None:
        self.abandon()
        recorder.pause, recorder.main, recorder.segment = None, self.segment, self.segment
        self._schedule.paused(self)

    def abandon(self) -> None:
        """Restore the functions that torch calls; write nothing."""
        switches.turn_on()
        updates.take_back()

    def _write_progress(self, now: int) -> None:
        self.wall = now - self._begun
        self.segment.end(self._record, Stage.REST, self.wall, self.steps)
        for loader, place in self._batch_records:
            self.segment.end(place, Stage.TAKEN, *self.batches_during_pause[loader])


class _RecordingSchedule:
    """Decides after each update whether the next step is recorded.

    Attributes:
        cycle: which updates make a step.
        known: optimizers (by id) that have made updates which were recorded.
        batch_requests: of loaders, in the window.
        forwards_without_gradients: forwards without gradients since the last update.
        evaluation_announced: a model was set to evaluate since the last update.
    """

    def __init__(self) -> None:
        self.cycle = _StepPattern()
        self.known: set[int] = set()
        self.batch_requests: Counter[int] = Counter()
        self.forwards_without_gradients = 0
        self.evaluation_announced = False
        self._segment: Segment | None = None
        self._restart()

    def _restart(self) -> None:
        self.cycle = _StepPattern()
        self.known = set()
        self._always_full = os.environ.get(_VARIABLE) == "0"
        self._thread = 0
        self._state = 12345
        self._windows = self._steps = 0
        self._window = _FIRST_WINDOW
        self._walls: list[int] = []  # of the window's steps, ns
        self._cpus: list[int] = []
        self._last = clock.wall_ns(), clock.cpu_ns()
        self._since = self._last[1]
        self._full_step = 0.0, 0.0  # median wall and CPU of a step in full
        self._paused_step = 0.0, 0.0  # mean of one in a pause
        self._cost, self._spent = float(_COST_NS), 0.0
        self._measured = False
        self._feeding: list[int] = []
        self._strange_endings = 0  # pauses that other loaders have ended
        self._short_pauses = 0  # pauses in turn that eval() has ended after few steps

    def updated(self, optimizer: torch.optim.Optimizer, segment: Segment) -> None:
        """Note that an update was made and recorded.

        It never raises.
        """
        if segment is not self._segment:
            self._segment = segment
            self._restart()
        if self._always_full:
            return
        try:
            self._count(optimizer, segment)
        except Exception:
            reraise_of_handler()
            self._always_full = True

    def _count(self, optimizer: torch.optim.Optimizer, segment: Segment) -> None:
        self.known.add(id(optimizer))
        if (
            self.forwards_without_gradients >= _LOOP
            and not self.evaluation_announced
            and not recorder.asked
        ):
            self._always_full = True
        self.forwards_without_gradients, self.evaluation_announced = 0, False
        if self.cycle.begins(id(optimizer)):
            now, before = (clock.wall_ns(), clock.cpu_ns()), self._last
            self._steps += 1
            self._walls.append(now[0] - before[0])
            self._cpus.append(now[1] - before[1])
            self._last = now
        if self._steps >= self._window and self.cycle.may_end(id(optimizer)):
            self._decide(segment)

    def _decide(self, segment: Segment) -> None:
        """Decide what comes next, now that the window is over.

        Its cost is CPU time, which other processes do not stretch and waiting does not increase.
        """
        if len(self._walls) >= _WINDOW // 2:
            self._full_step = float(np.median(self._walls)), float(np.median(self._cpus))
        wall, cpu = (
            self._paused_step
            if self._paused_step[0]
            else (max(one - self._cost, one / 2) for one in self._full_step)
        )
        self._spent += self._steps * self._cost
        learned = self._learn_feeding()
        self._next_window()
        if wall >= _LONG_NS:
            self._spent, self._since = 0.0, self._last[1]
            self._paused_step = 0.0, 0.0
            return
        debt = self._spent / _BUDGET - (clock.cpu_ns() - self._since)
        if debt > 0 and learned and self._may_pause_now():
            least = max(_MIN_PAUSED_STEPS * cpu, _WINDOW * self._cost / _BUDGET / 2)
            steps = (
                max(debt, least)
                / cpu
                * (1 + self._windows // _WINDOWS_BEFORE_FEWER)
                * (0.5 + self._random())
            )
            now = clock.wall_ns()
            _Rest(
                self,
                segment,
                now,
                int(steps),
                now + min(int(2 * steps * wall), _MAX_PAUSE_NS),
                self._feeding,
            ).begin()

    def _learn_feeding(self) -> bool:
        """Determine from a whole window which loaders feed the steps.

        False: other loaders have ended pauses several times, check again.
        """
        if self._steps >= _WINDOW // 2:
            self._feeding = [
                loader
                for loader, requests in self.batch_requests.items()
                if requests * 2 >= self._steps
            ]
        elif self.batch_requests.keys() - set(self._feeding):
            self._strange_endings += 1
            return self._strange_endings % _STRANGE != 0
        return True

    @property
    def full_ns(self) -> float:
        """Median wall time of a step that was recorded in full."""
        return self._full_step[0]

    @property
    def cost_ns(self) -> int:
        """CPU time of recording a step in full; UNMEASURED before the end of the first pause."""
        return round(self._cost) if self._measured else UNMEASURED

    def _next_window(self) -> None:
        self._windows += 1
        self._window, self._steps = _WINDOW, 0
        self._walls.clear()
        self.batch_requests.clear()

    def _may_pause_now(self) -> bool:
        here = threading.get_ident()
        if self._thread not in (0, here):
            self._always_full = True  # several threads train
        self._thread = here
        quiet = (
            recorder.ranges is None
            and recorder.flops is None
            and recorder.every != 1
            and not updates.others
        )
        return quiet and recorder.may_pause and not self._always_full and between()

    def _random(self) -> float:
        """Return a pseudo-random number from 0 to 1, from a sequence independent of the training's."""
        self._state = (self._state * 1103515245 + 12345) & 0x7FFFFFFF
        return (self._state >> 8) / (1 << 23)

    def paused(self, pause: _Rest) -> None:
        """Note that a pause is over."""
        before, self._last = self._last, (clock.wall_ns(), clock.cpu_ns())
        if pause.steps >= _MIN_PAUSED_STEPS // 2:
            self._paused_step = (
                pause.wall / pause.steps,
                max((self._last[1] - before[1]) / pause.steps, _LEAST_NS),
            )
            # 0.8 ms were seen, with a GPU
            measured = min(
                max(self._full_step[1] - self._paused_step[1], _COST_NS / 3), _COST_NS * 8
            )
            self._cost += (measured - self._cost) / (4 if self._measured else 1)
            self._measured = True
        if recorder.convergence is not None and pause.updates:
            batches, samples = (
                (sum(column) for column in zip(*pause.batches_during_pause.values(), strict=True))
                if pause.batches_during_pause
                else (0, 0)
            )
            recorder.convergence.paused(pause.updates, pause.steps, batches, samples)

    def resumed_early(self) -> None:
        """Record the current step, then decide again."""
        self._window = 1

    def evaluates(self) -> None:
        """Note that a model is switched to evaluation mode."""
        self.evaluation_announced = True
        pause = recorder.pause
        if pause is not None:
            self._short_pauses = self._short_pauses + 1 if pause.updates < _WINDOW else 0
            if self._short_pauses < _STRANGE:  # else it is a part of the steps
                recorder.resume()

    def made(self) -> None:
        """Note that an optimizer is being created.

        Another training may begin, possibly at the address of an older optimizer.
        """
        recorder.resume()
        self.known.clear()
        self._window = max(self._window, _WINDOW)

    def stop(self) -> None:
        """Note that the recording ends."""
        recorder.resume()
        switches.forget()
        self._segment = None
        self.forwards_without_gradients, self.evaluation_announced = 0, False


schedule = _RecordingSchedule()


def _has_compiled() -> bool:
    """Return whether dynamo has compiled anything.

    Its guards may refer to the code that would be exchanged.
    """
    dynamo = sys.modules.get("torch._dynamo.utils")
    return dynamo is not None and bool(dynamo.counters.get("frames"))


def attach(patches: Patches) -> None:
    """Let evaluations end a pause.

    ``eval()`` calls ``train(False)``, as some libraries do themselves.
    """
    original = torch.nn.Module.train

    def train(self: Any, mode: bool = True) -> Any:
        if not mode and not torch.compiler.is_compiling() and not schedule.evaluation_announced:
            schedule.evaluates()
        return original(self, mode)

    patches.set(torch.nn.Module, "train", train)


def _bare_code(function: FunctionType, original: Any) -> CodeType | None:
    """Return code with which a replacement only does what its original does.

    None: that needs other globals or variables.
    """
    if not isinstance(original, FunctionType):
        return None
    if (
        function.__globals__ is original.__globals__
        and function.__closure__ == original.__closure__
    ):
        return original.__code__
    code = original.__code__
    if code.co_freevars or any(
        step.opname in ("LOAD_GLOBAL", "LOAD_NAME") for step in dis.get_instructions(code)
    ):
        return None
    return code.replace(co_freevars=function.__code__.co_freevars)
