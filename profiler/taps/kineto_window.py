"""Records a few steps with torch.profiler, for kernels, copies, NCCL and operators.

Its trace goes into the rank's folder. There is one Kineto session per process. feedline does not
start one while the program has one, and stops when the program starts one.

torch binds a profiler to the thread and to the backward in which it begins. This one begins, steps
and ends between calls (updates.py), in one thread: if it ended inside a backward, torch would
restore it when that returns, and refuse the program a profiler of its own.

Marks with a known time on feedline's clock align the two clocks. The clock is read before each mark
begins, so a mark lies between its own reading and that of the mark after it: whatever both clocks
are, the difference between them is known within the narrowest of these gaps
(analysis/traces/windows.py). The machine's name, and folders in names and in the file itself,
are masked in the trace.
"""

import gzip
import os
import re
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch.torch_version import TorchVersion

from feedline.profiler import clock, masks, message, nvtx_ranges
from feedline.profiler.events import Stage
from feedline.profiler.fail_open import fail_open, reraise_of_handler
from feedline.profiler.files import owned
from feedline.profiler.message import Message, ReportHook
from feedline.profiler.record.detail import ProfilerWindow
from feedline.profiler.record.recorder import recorder
from feedline.profiler.store.layout import KINETO as FILE
from feedline.profiler.taps.patch import Patches
from feedline.profiler.taps.updates import CountedSteps, updates
from feedline.profiler.torch_internals import is_profiled

_OF_THE_MACHINE = re.compile(r'("(?:host_name|traceName)"\s*:\s*")[^"]*')
_LEVEL = 6  # of gzip
_MAX_FORWARDS = 16  # without gradients that one step may make in turn beyond what is usual
_USUAL = 20  # steps that tell what is
# such forwards that one window may hold: each of a language model is some 3,000 events, and the
# training waits until they are written; who asks for a window has chosen its length
_MOST_UNASKED, _MOST_ASKED = 200, 1000
_MARKS = 4  # the first finds nothing in the processor's caches; the narrowest gap counts
#: A range without the 10 us that record_function takes in Python. Private to torch, in 2.8 to 2.15.
_range: Any = getattr(torch._C._profiler, "_RecordFunctionFast", torch.profiler.record_function)
PROFILER_HOOK = "torch.profiler"
_DETACHES = "TEARDOWN_CUPTI"  # read by Kineto when a session ends
# before this CUDA, a detached CUPTI crashes programs that use CUDA graphs (pytorch/pytorch#146604)
_DETACHES_WELL = "12.6"
# when nothing else is asked: past the first allocations and autotuning, some 1 MB of trace
_WINDOW_ON_A_GPU = ProfilerWindow(20, 5)


def _pack(exported: Path, to: BinaryIO) -> None:
    """Compress what ``export_chrome_trace`` wrote, line by line.

    Raises:
        OSError: no room.
    """
    with (
        exported.open(encoding="utf-8", errors="surrogateescape") as lines,
        gzip.GzipFile("", "wb", _LEVEL, to, 0) as packed,
    ):
        packed.writelines(line.encode("utf-8", "surrogateescape") for line in _masked(lines))


def _masked(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines, masked where they may contain a path or a name that the program gave.

    Few lines of a trace do.
    """
    for line in lines:
        if '"host_name"' in line or '"traceName"' in line:
            line = _OF_THE_MACHINE.sub(rf"\1{masks.MASK}", line)
        elif "/" in line or '"name"' in line and "::" not in line:
            line = masks.text(line)
        yield line


def _mark_clock() -> None:
    """Put marks into the trace that is being recorded, if there is one. Never raises."""
    with fail_open:
        for _ in range(_MARKS):
            with _range(f"{clock.MARK}{clock.wall_ns()}"):
                pass


class KinetoWindow:
    """Counts optimizer updates and profiles some of the steps between them.

    It counts those of one optimizer, if several alternate (CountedSteps).

    Args:
        folder: the rank's; ``kineto.json.gz`` is made in it.
        asked: which steps; None: ``_WINDOW_ON_A_GPU`` where a GPU is used, and none where not.
        report: called with the outcome.
    """

    def __init__(self, folder: Path, asked: ProfilerWindow | None, report: ReportHook) -> None:
        self._path = folder / FILE
        self._asked = asked
        self._plan = asked or _WINDOW_ON_A_GPU
        self._report = report
        self._profiler: torch.profiler.profile | None = None
        self._steps = CountedSteps()
        self._first = 0  # the updates before the window
        self._begun = 0
        self._forwards = 0  # without gradients, in turn
        self._most_forwards = 0  # of those, in this step
        self._in_window = 0  # all that an open window recorded, or its warm-up until that ends
        self._most_in_window = _MOST_UNASKED if asked is None else _MOST_ASKED
        self._usual_forwards: deque[int] = deque(maxlen=_USUAL)  # of these, in the last steps
        self._dropped = ""  # why a window was
        self._exported = False
        self._done = False
        self._attached = False
        self._unfollow: Callable[[], None] = lambda: None
        self._thread = 0  # that began it
        self._ours = False
        self._stopping = False
        self._others = False

    def attach(self, patches: Patches) -> None:
        """Watch updates, and profilers started by the program."""
        for name in ("_prepare_profiler", "_enable_profiler"):
            patches.set(
                torch.autograd.profiler, name, self._watched(getattr(torch.autograd.profiler, name))
            )
        self._unfollow = updates.follow(after=self._after_update)
        recorder.profiled = self
        self._attached = True

    def stop(self) -> None:
        """Keep what an open window has recorded: the training ends."""
        # else its own thread ends it, with its next update
        if self._profiler is None or threading.get_ident() == self._thread:
            self._unfollow()
            updates.between_calls(self._stop)
        self._stopping = True

    def _stop(self) -> None:
        if self._done or not self._attached:
            return
        if self._profiler is None:
            self._end(self._dropped or self._why_not() or self._too_short())
        else:
            self._cut_short("the training ended")

    def _complete(self) -> int:
        """Return how many steps an open window has recorded to their ends."""
        assert self._profiler is not None
        return max(self._profiler.step_num - self._first - 1, 0)  # without the warm-up

    def _cut_short(self, why: str) -> None:
        """End an open window; what it has is kept."""
        self._close(self._cut(why))

    def _cut(self, why: str) -> str:
        return f"{why} in its window, after {self._complete()} of {self._plan.active} steps"

    def _too_short(self) -> str:
        ended = (
            f"the training ended after {self._steps.updates} steps, before the profiled ones, which "
            f"begin after step {self._plan.skip}"
        )
        return f"{ended}: lower SKIP in --torch-profiler SKIP:ACTIVE"

    def _after_update(self, optimizer: torch.optim.Optimizer) -> None:
        if (
            self._done
            or torch.compiler.is_compiling()
            or recorder.main is None
            and not self._stopping
        ):
            return
        if self._steps.ends(optimizer):
            updates.between_calls(self._step_ended)

    def forwards(self, gradients: bool) -> None:
        """Note that a model is called, with gradients or without.

        An evaluation would fill the trace, and the training would wait until that is written. Some
        calls may be a part of each step, such as those of a teacher, or rollouts; these may fill it
        as well.
        """
        if self._profiler is not None and threading.get_ident() != self._thread:
            return
        self._forwards = 0 if gradients else self._forwards + 1
        self._most_forwards = max(self._most_forwards, self._forwards)
        self._in_window += not gradients
        if self._profiler is not None and (
            self._fills() or self._forwards > _MAX_FORWARDS + 2 * self._usual()
        ):
            updates.between_calls(self._too_many_forwards)

    def _fills(self) -> bool:
        """Return whether an open window has more than it may hold."""
        return self._in_window > self._most_in_window

    def _usual(self) -> int:
        """Return the median of what the last steps made: an evaluation between them is none."""
        made = sorted(self._usual_forwards)
        return made[len(made) // 2] if made else 0

    def _too_many_forwards(self) -> None:
        """End an open window that has a step; drop one that has none, but only once.

        Where the next one has none either, such forwards are a part of the steps. If one step alone
        makes more than a window may hold, there is no trace.
        """
        if self._profiler is None or threading.get_ident() != self._thread:
            return
        why = "many forward passes without gradients (an evaluation, rollouts or generation)"
        if self._complete():
            self._cut_short(why)
        elif not self._dropped:
            self._dropped = self._cut(why)
            self._profiler.on_trace_ready = None
            problem = self._end_session()
            if problem:
                self._end(problem)
        elif self._fills():
            self._profiler.on_trace_ready = None
            self._cut_short(why)

    def _count_forwards(self) -> None:
        """Note what the step made that has ended; the first one may follow an evaluation."""
        if self._steps.updates > 1:
            self._usual_forwards.append(self._most_forwards)
        self._forwards = self._most_forwards = 0

    def _step_ended(self) -> None:
        if self._done:
            return
        if self._profiler is None or threading.get_ident() == self._thread:
            self._count_forwards()
        try:
            if self._profiler is None:
                if not self._stopping and self._steps.updates >= self._plan.skip:
                    self._open()
            elif threading.get_ident() == self._thread:
                self._window_goes_on()
        except Exception as error:
            reraise_of_handler()
            self._close(masks.error(error))

    def _window_goes_on(self) -> None:
        if self._steps.taken_over:
            self._cut_short("the first optimizer made no update during many of another one")
        else:
            self._step()
            if self._stopping:
                self._stop()

    def _open(self) -> None:
        why = self._why_not()
        if why:
            self._end(why)
            return
        self._begun, self._thread = clock.wall_ns(), threading.get_ident()
        activities = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_initialized():
            activities.append(torch.profiler.ProfilerActivity.CUDA)
            _detach_cupti()
        plan = torch.profiler.schedule(wait=0, warmup=1, active=self._plan.active, repeat=1)
        first = self._first = self._steps.updates
        self._in_window = 0
        with self._own():
            self._profiler = torch.profiler.profile(
                activities=activities,
                schedule=lambda step: plan(max(step - first, 0)),
                on_trace_ready=self._export,
                # else torch 2.10 to 2.12 warn of a second cycle, which there is not: pytorch#180348
                acc_events=True,
            )
            # so that ProfilerStep#N is step N of the training, from 0
            self._profiler.step_num = first
            self._profiler.start()
            _do_not_parse(self._profiler)

    def _step(self) -> None:
        assert self._profiler is not None
        _mark_clock()
        with self._own():
            self._profiler.step()
        if not self._complete():
            self._in_window = 0  # the warm-up has ended, and nothing of it is kept
        if self._exported:
            self._close(None)
        else:
            _mark_clock()

    def _why_not(self) -> str | None:
        on_gpu = torch.cuda.is_initialized()
        if self._asked is None and not on_gpu:
            return Message(
                "no GPU was used: `feedline run --torch-profiler SKIP:ACTIVE` records the CPU's "
                "operators",
                message.NO_GPU,
            )
        if self._others or is_profiled():
            return "the program runs torch.profiler itself, and only one can run at a time"
        if on_gpu and nvtx_ranges.listening():
            return "a tool that listens to NVTX may use CUPTI, and only one tool can"
        return None

    def _export(self, profiler: torch.profiler.profile) -> None:
        with tempfile.NamedTemporaryFile(prefix="feedline-", suffix=".json") as exported:
            profiler.export_chrome_trace(exported.name)
            with owned.replacing(self._path.parent, FILE) as packed:
                _pack(Path(exported.name), packed)
        self._exported = True

    def _close(self, problem: str | None) -> None:
        """End the window, whatever state it is in. Never raises."""
        self._unfollow()
        ended = self._end_session()
        self._end(problem or ended)

    def _end_session(self) -> str | None:
        """End Kineto's session, if there is one; return what went wrong. Never raises."""
        problem = None
        profiler, self._profiler = self._profiler, None
        try:
            if profiler is not None:
                with self._own():
                    profiler.stop()
        except Exception as error:
            reraise_of_handler()
            problem = masks.error(error)
        if recorder.main is not None and self._begun:
            recorder.main.add(
                Stage.PROFILED, self._begun, clock.wall_ns() - self._begun, extra=self._plan.active
            )
        self._begun = 0
        return problem

    def _end(self, problem: str | None) -> None:
        self._done = True
        self._unfollow()
        if recorder.profiled is self:
            recorder.profiled = None
        gives = (
            f"{self._plan.active} steps after {self._first + 1}, in {self._path.parent.name}/{FILE}"
        )
        self._report(PROFILER_HOOK, self._exported, problem or gives)

    @contextmanager
    def _own(self) -> Iterator[None]:
        before, self._ours = self._ours, True
        try:
            yield
        finally:
            self._ours = before

    def _watched(self, original: Any) -> Any:
        def begin(*args: Any, **kwargs: Any) -> Any:
            if not self._ours:
                self._others = True
                if self._profiler is not None:
                    self._profiler.on_trace_ready = None
                    self._close(
                        "the program started torch.profiler in the window, and only one can run "
                        "at a time"
                    )
            return original(*args, **kwargs)

        return begin


def _do_not_parse(started: torch.profiler.profile) -> None:
    """Leave out what ``acc_events`` does when it stops: an object in Python for each event.

    Each takes the training some 70 us, and the trace is written without them.
    """
    inner = started.profiler
    if inner is not None:
        inner.acc_events = False


def _detach_cupti() -> None:
    """Let Kineto detach CUPTI when the session ends.

    Left attached, it slows each kernel launch until the program ends (pytorch/pytorch#144455). What
    the user has set stays, and where torch knows of CUDA graphs it decides itself.
    """
    if torch.version.cuda is not None and TorchVersion(torch.version.cuda) >= _DETACHES_WELL:
        os.environ.setdefault(_DETACHES, "1")
