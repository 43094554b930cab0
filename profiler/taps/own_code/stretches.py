"""Times what the program's own code does between models, backward passes and updates.

It shows where the stage ``other`` goes.
"""

import inspect
import os
import random
import sys
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from functools import lru_cache
from types import CodeType, FrameType
from typing import NamedTuple

import torch

from feedline import profiler
from feedline.profiler import clock, masks
from feedline.profiler.events import Flag, Stage
from feedline.profiler.record.recorder import recorder
from feedline.profiler.store.segment import Segment
from feedline.profiler.taps.own_code.python_calls import CalledTimes, CallTimes, RunningFrame
from feedline.profiler.taps.source_names import name_of

# steps before the first stretch is looked at, once operations were counted (taps/flops.py): they
# import and allocate
_WARM_UP_STEPS = 2
# what share of the time looks may cost in the beginning, and in the end
_FIRST_BUDGET, _LATER_BUDGET = (0.05, 0.003)
# then the share falls as time passes: a sudden fall lets a few looks stand for most of a short run
_BEGINNING_NS = 2_000_000_000
#: Share of a stretch that counts as the cost of tracing, whatever is called in it: until 3.11,
#: Python then goes through every instruction more slowly. Loops without any call took 1.7 to 2.8
#: times as long; what C functions take, such as torch's, stays the same.
_SLOWED = 0.2 if sys.version_info < (3, 12) else 0.0
_MIN_CHANCE = 1 / 2000  # chance of a step
_FULL_STRETCHES = 16  # stretches of a kind that are looked at in a step; of more, fewer and fewer
# a function that runs through this many stretches in a row calls the model itself, as a solver
# does; it is not the training loop
_SOLVER_STRETCHES = 4
#: Flags of the sums of a step: of its own stretches, of those between two forwards without gradients,
#: and of those between such a forward and a request to a loader.
_SUMMED = (Flag.GRAD, 0, 0)
_NESTED = 3  # functions of torch, or decorators, around one of the program's
_MAX_FUNCTIONS = 8  # functions that are recorded of a step
_MIN_REPORTED_SHARE = 0.01  # of the time that was looked at
_FEEDLINE_PATHS = tuple(
    path + os.sep for path in (*sys.modules["feedline"].__path__, *profiler.__path__)
)
#: Parts of torch around the calls that feedline records: the program is not asked to change them.
_PLUMBING_NAMES = """
    _compile.py _dynamo _functorch _ops.py _tensor.py autograd multiprocessing nn/modules nn/parallel nn/utils/clip_grad.py
    optim/optimizer.py utils/_contextlib.py utils/_python_dispatch.py utils/data utils/hooks.py
"""
_PLUMBING = tuple(
    os.path.join(torch.__path__[0], *name.split("/")) for name in _PLUMBING_NAMES.split()
)
_NOT_REPORTED = _FEEDLINE_PATHS + _PLUMBING
# flags of a function that takes *args and **kwargs
_ANYTHING = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


class _Lines(NamedTuple):
    """Code of a function between two of its instructions. -1: from its beginning.

    The second comes first, or is the same, where a loop goes around.
    """

    code: int  # its id
    first: int
    last: int


_Target = int | _Lines  # a function, by the id of its code, or lines of one


class _StretchSums:
    """Of the stretches of a step that were looked at, each counted for as many as it stands for.

    Attributes:
        start: of the last, ns. The first one may begin before the step does, which is when the
            loader is asked.
        looks: how many.
        took: ns of all they stand for.
        looking: ns that looking at them cost, and writing down the last ones.
        outer: what the loop called, or lines of it -> ns; these add up to ``took``.
        whole: any function, however deep it was called -> ns.
        codes: by their ids.
    """

    def __init__(self, looking: int = 0) -> None:
        self.start = self.looks = self.took = 0
        self.looking = looking
        self.outer: Counter[_Target] = Counter()
        self.whole: Counter[_Target] = Counter()
        self.codes: dict[int, CodeType] = {}

    def add(self, stretch: "_Stretch", weight: float) -> None:
        """Add a stretch that stands for as many."""
        self.start, self.looks = stretch.start, self.looks + 1
        self.took += round(stretch.took * weight)
        self.codes.update(stretch.codes)
        for into, times in ((self.outer, stretch.outer()), (self.whole, stretch.whole())):
            for what, ns in times.items():
                into[what] += round(min(ns, stretch.took) * weight)

    def worth(self) -> dict[_Target, str]:
        """Return what is worth a record, with its name."""
        least, named = _MIN_REPORTED_SHARE * self.took, dict[_Target, str]()
        for sums in (self.outer, self.whole):
            most = [
                what
                for what, took in sums.most_common()
                if took >= least and self._is_reported(what)
            ][:_MAX_FUNCTIONS]
            named.update((what, self._name(what)) for what in most)
        return named

    def _is_reported(self, what: _Target) -> bool:
        return not self.codes[what if isinstance(what, int) else what.code].co_filename.startswith(
            _NOT_REPORTED
        )

    def _name(self, what: _Target) -> str:
        if isinstance(what, int):
            return name_of(self.codes[what])
        code = self.codes[what.code]
        first = code.co_firstlineno if what.first < 0 else _line_of(code, what.first)
        return name_of(code, (first, _line_of(code, what.last)), around=what.last <= what.first)


class _Stretch:
    """Of the program's own code, from one call of a model, backward pass or update to the next.

    Args:
        start, took: ns.
        called: in it.
        before, after: what ran at its ends.
        loop: ids of the codes that run whole steps.
        ran: number of a frame -> stretches in a row in all of which it ran.

    Attributes:
        codes: by their ids.
        ran: the same, with this stretch.
    """

    def __init__(
        self,
        start: int,
        took: int,
        called: CalledTimes,
        before: list[RunningFrame],
        after: list[RunningFrame],
        loop: Container[int],
        ran: Mapping[int, int],
    ) -> None:
        self.start, self.took = start, took
        self.codes = called.codes | {id(frame.code): frame.code for frame in after}
        self._called, self._after = called, after
        self._through = _ran_throughout(before, after, called)
        inside = [frame for frame, _ in self._through if id(frame.code) not in loop]
        self.ran = {frame.number: ran.get(frame.number, 0) + 1 for frame in inside}
        # as a solver
        self._inside = [
            id(frame.code) for frame in inside if self.ran[frame.number] >= _SOLVER_STRETCHES
        ]

    def whole(self) -> dict[int, int]:
        """Return the time of each function, ns, however deep it was called.

        Those that are not over are left out, and those that only pass calls on.
        """
        running = {id(frame.code) for frame in self._after}
        over = {
            code: ns
            for code, ns in self._called.whole.items()
            if code not in running and not _passes_on(self.codes[code])
        }
        return over | dict.fromkeys(self._inside, self.took)

    def outer(self) -> "Counter[_Target]":
        """Return what the loop called, and lines of it -> ns.

        A function that calls a model, and so is not over, is a part of the loop here.
        """
        if self._inside:
            return Counter({self._inside[0]: self.took})
        parts: Counter[_Target] = Counter(self._called.direct)
        if self._through:
            before, after = self._through[-1]
            parts[_Lines(id(before.code), before.at, after.at)] = max(
                self.took - sum(parts.values()), 0
            )
        begun = self._after[len(self._through) :]
        codes = [id(frame.code) for frame in begun]
        for at, (code, frame) in enumerate(zip(codes, begun)):
            if code not in parts:
                break
            took = parts.pop(code)
            inner = self._called_by(code, took, {*codes} - {*codes[at + 1 : at + 2]})
            parts.update(inner)
            parts[_Lines(code, -1, frame.at)] += took - sum(inner.values())
        return self._by_the_program(self._without_plumbing(parts))

    def _called_by(self, code: int, took: int, elsewhere: Container[int]) -> dict[int, int]:
        """Return what one call of a function called, at most what it took itself.

        Args:
            elsewhere: functions that other calls of it have called, as where it calls itself.
        """
        called = {
            other: ns
            for other, ns in self._called.inner.get(code, {}).items()
            if other not in elsewhere
        }
        scale = min(1.0, took / max(sum(called.values()), 1))
        return {other: int(ns * scale) for other, ns in called.items()}

    def _by_the_program(self, parts: "Counter[_Target]") -> "Counter[_Target]":
        """Return what lines of the program call of other libraries, as these lines.

        A library is not the program's to change. Where a loop is a library's itself, what it calls
        tells more than its lines do.
        """
        if not self._through or _is_of_library(self._through[-1][0].code):
            return parts
        before, after = self._through[-1]
        lines = _Lines(id(before.code), before.at, after.at)
        reported = [
            part
            for part in parts
            if isinstance(part, int) and not self.codes[part].co_filename.startswith(_NOT_REPORTED)
        ]
        for code in [part for part in reported if _is_of_library(self.codes[part])]:
            took, inner = parts.pop(code), self._called.inner.get(code, {})
            for other, ns in inner.items():
                if not _is_of_library(self.codes[other]):
                    parts[other] += min(ns, took)
                    took -= min(ns, took)
            parts[lines] += took
        return parts

    def _without_plumbing(self, parts: "Counter[_Target]") -> "Counter[_Target]":
        """Return what torch's functions and decorators call, in their place."""
        kept: Counter[_Target] = Counter()
        for _ in range(_NESTED):
            for code in [
                part for part in parts if isinstance(part, int) and _passes_on(self.codes[part])
            ]:
                took, inner = parts.pop(code), dict(self._called.inner.get(code, {}))
                inner.pop(code, None)  # decorated twice
                scale = min(1.0, took / max(sum(inner.values()), 1))
                for other, ns in inner.items():
                    parts[other] += round(ns * scale)
                    took -= round(ns * scale)
                kept[code] += max(took, 0)
        parts.update(kept)
        return parts


class OwnCodeTimer:
    """Times what the program's own code does in steps that are chosen by chance.

    In these it looks at some of their many stretches. A step is looked at not more often because
    it, or the one before it, is long. A stretch between two forwards without gradients may belong
    to an evaluation or a rollout, and is summed separately. So is one between such a forward and a
    request to a loader, which may be that of the next step.
    """

    def __init__(self) -> None:
        self._calls: CallTimes | None = None  # until the first look
        self._random = random.Random(0)
        self._steps = self._looked = 0  # steps, and those that were looked at
        # ns that steps have taken so far, without rests; and when the last one ended
        self._passed = self._last = 0
        self._chance = 0.0  # of this step
        self._looks = False  # at this step
        self._stretches = [0, 0]  # of it, by whether they follow a forward without gradients
        self._cost = 0  # ns that all looks have cost
        self._weight = 1.0
        self._ran: dict[int, int] = {}
        self._loop: dict[
            int, CodeType
        ] = {}  # what ran when updates and backward passes were made, by id
        # when looking began, when the stretch did, and what ran
        self._begun: tuple[int, int, list[RunningFrame]] = (0, 0, [])
        self._after_inference = False
        self._copied = 0  # ns of the stretch, between devices
        self._sums = self._new_sums()

    def _new_sums(self, looking: int = 0) -> tuple[_StretchSums, ...]:
        return _StretchSums(looking), *(_StretchSums() for _ in _SUMMED[1:])

    def chooses(self, after_inference: bool) -> bool:
        """Count a stretch that begins, and draw whether to look at it.

        Args:
            after_inference: a forward without gradients has ended.
        """
        if not self._looks:
            return False
        self._after_inference = after_inference
        self._stretches[after_inference] += 1
        chance = min(1.0, _FULL_STRETCHES / self._stretches[after_inference])
        self._weight = 1 / (self._chance * chance)
        return chance == 1.0 or self._random.random() < chance

    def on(self) -> bool:
        """Look. False if the calls cannot be observed."""
        if self._calls is None:
            self._calls = CallTimes()
        begun = clock.wall_ns()
        before = _of_the_program(_running_frames())
        self._copied = 0
        seen = self._calls.on()
        self._begun = begun, clock.wall_ns(), before
        return seen

    def off(self, before_inference: bool, asks: bool) -> None:
        """Note that the stretch is over; what ends it may have asked a loader."""
        (begun, start, before), now, calls = self._begun, clock.wall_ns(), self._calls
        if calls is None:
            return
        called, wall = calls.off(), now - start
        took = max(wall - called.cost - self._copied, 0)
        infers = self._after_inference and before_inference
        sums = self._sums[infers * (1 + asks)]
        if not calls.gave_up:
            stretch = _Stretch(
                start,
                took,
                called,
                before,
                _of_the_program(_running_frames()),
                self._loop,
                self._ran,
            )
            self._ran = stretch.ran
            sums.add(stretch, self._weight)
        around = start - begun + clock.wall_ns() - now
        sums.looking += around + called.cost
        self._cost += around + max(called.cost, round(_SLOWED * wall))

    def copied(self, took: int) -> None:
        """Note that a tensor was copied to another device in the stretch, in this many ns.

        That is another stage.
        """
        self._copied += took

    def step_ends(self, segment: Segment | None) -> None:
        """Note that an update was made; None: the step was not recorded."""
        begun = clock.wall_ns()
        self._passed = (
            self._passed + (begun - self._last if self._last else 0)
            if self._steps >= _WARM_UP_STEPS
            else 0
        )
        self.loop_runs()
        if any(sums.looking for sums in self._sums):
            for sums, flags in zip(self._sums, _SUMMED):
                if segment is not None and sums.looking:
                    _write(sums, flags, segment)
            self._looked += any(sums.looks for sums in self._sums)
            writing = clock.wall_ns() - begun if self._looks else 0
            self._sums, self._cost = self._new_sums(writing), self._cost + writing
        self._steps = self._steps + 1 if recorder.flops is None else 0
        self._choose()
        self._last = begun if segment is not None else 0

    def loop_runs(self) -> None:
        """Note that a backward pass or an update was made: what runs now is the training loop."""
        if self._looks or (self._steps < _WARM_UP_STEPS and recorder.flops is None):
            self._loop.update((id(frame.code), frame.code) for frame in _running_frames())

    def end(self) -> None:
        """Stop observing."""
        if self._calls is not None:
            self._calls.end()

    def _choose(self) -> None:
        """Draw whether to look at a step that begins.

        It is looked at as often as the budget allows by what looking at a step has cost until now.
        """
        if self._steps < _WARM_UP_STEPS:
            self._looks = False
            return
        budget = max(_LATER_BUDGET, _FIRST_BUDGET * min(1.0, _BEGINNING_NS / max(self._passed, 1)))
        allowed = budget * self._passed / (self._steps - _WARM_UP_STEPS + 1)  # per step
        each = self._cost / max(self._looked, 1)
        self._chance = min(max(allowed / each, _MIN_CHANCE), 1.0) if each else 1.0
        self._looks = self._random.random() < self._chance
        self._stretches = [0, 0]


def _passes_on(code: CodeType) -> bool:
    """Return whether a function is one of torch's, or what a decorator returned.

    The latter is a closure that takes any arguments.
    """
    return code.co_filename.startswith(_PLUMBING) or bool(
        code.co_freevars and code.co_flags & _ANYTHING == _ANYTHING
    )


def _is_of_library(code: CodeType) -> bool:
    """Return whether a function is in an installed library, torch and Python's own among them."""
    return bool(_library(code.co_filename))


@lru_cache(maxsize=1000)
def _library(file: str) -> str:
    return masks.library(file)


def _of_the_program(frames: list[RunningFrame]) -> list[RunningFrame]:
    """Return the calls without those that run the program.

    feedline's are among them; feedline's at the end are left out as well.
    """
    while frames and frames[-1].code.co_filename.startswith(_NOT_REPORTED):
        frames.pop()
    ours = [
        at for at, frame in enumerate(frames) if frame.code.co_filename.startswith(_FEEDLINE_PATHS)
    ]
    return frames[ours[-1] + 1 :] if ours else frames


def _write(sums: _StretchSums, flags: int, segment: Segment) -> None:
    start = sums.start or clock.wall_ns()
    segment.add(
        Stage.OWN_CODE, start, sums.took, runqueue=sums.looking, extra=sums.looks, flags=flags
    )
    for what, name in sums.worth().items():
        outer = sums.outer[what]
        segment.add(
            Stage.CALLED,
            start,
            max(sums.whole[what], outer),
            cpu=outer,
            source=segment.name_id(name),
            flags=flags,
        )


def _line_of(code: CodeType, at: int) -> int:
    """Return the line of an instruction; 0 if unknown."""
    return next((line for begin, end, line in code.co_lines() if begin <= at < end and line), 0)


def _running_frames() -> list[RunningFrame]:
    """Return what runs in this thread, the outermost first."""
    frames: list[RunningFrame] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        frames.append(RunningFrame(id(frame), frame.f_code, frame.f_lasti))
        frame = frame.f_back
    frames.reverse()
    return frames


def _ran_throughout(
    before: Iterable[RunningFrame], after: Iterable[RunningFrame], called: CalledTimes
) -> list[tuple[RunningFrame, RunningFrame]]:
    """Return what ran in all of a stretch, the outermost first: as it was at both ends.

    Args:
        before: what ran at its beginning.
        after: what ran at its end.
        called: in it. A function that was called in it may have taken the place of an earlier call.
    """
    pairs = []
    for at_begin, at_end in zip(before, after):
        if (
            at_begin.number != at_end.number
            or at_begin.code is not at_end.code
            or id(at_begin.code) in called.whole
        ):
            break
        pairs.append((at_begin, at_end))
    return pairs
