"""The public API inside a program.

It is ``feedline.record``, ``feedline.stage`` and ``feedline.metric``.
"""

import functools
import shlex
import sys
from collections.abc import Callable
from contextlib import ContextDecorator
from pathlib import Path
from types import TracebackType
from typing import Any

from feedline.profiler.errors import OutputError
from feedline.profiler.events import Stage
from feedline.profiler.fail_open import reraise_of_handler
from feedline.profiler.printable import say, say_in_training
from feedline.profiler.record.recorder import Span, recorder
from feedline.profiler.session import notebook
from feedline.profiler.session.ending import INTERRUPTED, Ending
from feedline.profiler.session.session import Session


class record(ContextDecorator):
    """Record a part of a program, as ``feedline run`` does for a whole one; a context manager and a decorator.

    Example::

        with feedline.record("runs/mine"):
            train()

        @feedline.record("runs/mine")
        def train(): ...

    A notebook shows the report below the cell. A plain program prints one line with the run folder; ``feedline report runs/mine``
    shows it. Loaders must be iterated inside; they may be created before.

    If the folder is not empty, it is left alone and the run goes into ``runs/mine-2``, for example when a cell is run again. If recording
    is impossible, the program runs without it. Both cases print one line on standard error.

    Args:
        path: the run folder to create.
        overwrite: replace an older run there.
        strict: raise instead of recording elsewhere or not at all.

    Raises:
        OutputError: (on entry, if ``strict``) the folder is taken or cannot be written, or this process is already being recorded.
    """

    def __init__(self, path: str | Path, overwrite: bool = False, strict: bool = False) -> None:
        self._path, self._overwrite, self._strict = Path(path), overwrite, strict
        self._sessions: list[Session | None] = []  # of each ``with`` that it is in; None: refused

    def _recreate_cm(self) -> "record":
        """Return what records one call of a decorated function, which may call itself."""
        return record(self._path, self._overwrite, self._strict)

    def __enter__(self) -> "record":
        self._sessions.append(None)
        try:
            # a kernel's own arguments say nothing
            command = sys.argv if notebook.shell() is None else ["notebook"]
            session = Session(self._path, command, self._overwrite, self._strict, begins=self._keep)
            if session.refused is not None:
                report(f"{session.refused.what}, recording into {session.path}")
        except BaseException as error:
            self._end(error)  # ``__exit__`` is not called, where the cell was interrupted here
            if isinstance(error, OutputError):
                error.for_call()
            if self._strict or not isinstance(error, Exception):
                raise
            reraise_of_handler()
            self._sessions.append(None)
            report(f"not recording: {str(error) or type(error).__name__}")
        return self

    def _keep(self, session: Session) -> None:
        self._sessions[-1] = session

    def _end(self, error: BaseException | None) -> Session | None:
        """End the recording; None where there is none."""
        session = self._sessions.pop()
        if session is None:
            return None
        try:
            session.stop(Ending.of(error))
        except (
            KeyboardInterrupt
        ):  # of the cell: the next one has to find nothing that still records
            session.stop(Ending(INTERRUPTED))
            raise
        return session

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        session = self._end(error)
        if session is None:
            return
        if session.is_mine and session.place.rank == 0:
            whole = session.folder.parent
            _show(session.path if session.path.absolute() == whole else whole)


def _show(run: Path) -> None:
    """Show a finished run: in a notebook as a report, in a plain program as a single line."""
    if notebook.shell() is None:
        say_in_training(f"recorded into {run}; to see it: feedline report {shlex.quote(str(run))}")
        return
    try:
        notebook.show(run)
    except BaseException as error:
        why = (
            "interrupted"
            if isinstance(error, KeyboardInterrupt)
            else str(error) or type(error).__name__
        )
        report(
            f"recorded into {run}, but the report was not built ({why}); try again with: feedline "
            f"report {shlex.quote(str(run))}"
        )
        if not isinstance(error, Exception):
            raise


def report(text: str) -> None:
    """Print one line.

    It goes below the cell in a notebook, else on the standard error that the process started with.
    """
    (say_in_training if notebook.shell() is None else say)(text)


class stage:
    """Show a part of the training step as a stage of its own in the report; a context manager and a decorator.

    Example::

        with feedline.stage("mixup"):
            images, labels = mixup(images, labels)

    Costs a few hundred nanoseconds without a recording. Works in the training and in a loader's workers; can be nested and reused.

    Args:
        name: at most 56 bytes. With the name of a built-in stage, such as ``input``, the time is added to that stage.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._spans: list[Span | None] = []

    def __enter__(self) -> "stage":
        segment = recorder.segment
        span = None
        if segment is not None:
            span = Span(
                segment, Stage.USER, segment.name_id(self._name), recorder.batch, name=self._name
            ).__enter__()
        self._spans.append(span)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        span = self._spans.pop()
        if span is not None:
            span.__exit__(kind, error, trace)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with stage(self._name):
                return function(*args, **kwargs)

        return wrapper


def metric(name: str, value: float) -> None:
    """Record a number of the training, such as an accuracy after an evaluation, at the current update.

    Example::

        feedline.metric("val accuracy", correct / total)

    Does nothing without a recording. The training loss, and the results of loss modules in an evaluation, are recorded without it.

    Args:
        name: at most 56 bytes; the same each time. For ``converge``, lower is better if the name contains "loss" or "error".
        value: a number, or a tensor with one element on the CPU.
    """
    watch = recorder.convergence
    if watch is not None:
        watch.metric(name, float(getattr(value, "detach", lambda: value)()))
