"""The public API inside a program.

It is ``feedline.record``, ``feedline.stage``, ``feedline.metric`` and ``feedline.on_trace_ready``.
In a notebook, a recording ends with its report below the cell.
"""

import functools
import html
import importlib
import itertools
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ContextDecorator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from feedline.profiler import ranks
from feedline.profiler.errors import OutputError
from feedline.profiler.events import Stage
from feedline.profiler.fail_open import reraise_of_handler
from feedline.profiler.files import output, single
from feedline.profiler.printable import say, say_in_training
from feedline.profiler.record.recorder import Span, recorder
from feedline.profiler.session.ending import INTERRUPTED, Ending
from feedline.profiler.session.session import Session
from feedline.profiler.store.segment import MOST_STAGES

if TYPE_CHECKING:
    from torch.profiler import profile


_WIDTH = 80
_HEIGHT = 640  # pixels of the frame: verdict, step and the first finding
_PAGE = "report.html"
# ipykernel sets the first, and rich would obey it
_COLORED = ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
_unrecorded: list[str] = []  # the first metric whose value was no number; one line says so


class Shown:
    """A finished recording, shown as its HTML report in a frame, or as the short text report."""

    def __init__(self, text: str, page: str) -> None:
        self._text, self._page = text, page

    def _repr_html_(self) -> str:
        style = f"width: 100%; height: {_HEIGHT}px; box-sizing: border-box; border: 1px solid #ccc"
        return (
            f'<iframe title="feedline report" style="{style}" sandbox="allow-scripts" '
            f'srcdoc="{html.escape(self._page)}"></iframe>'
        )

    def __repr__(self) -> str:
        return self._text


def _shell() -> Any | None:
    """Return the interactive shell (Jupyter, IPython) that runs this program.

    None in a plain program, and in processes started from a shell.
    """
    processes, made = sys.modules.get("multiprocessing"), sys.modules.get("IPython")
    if made is None or (processes is not None and processes.parent_process() is not None):
        return None
    return getattr(made, "get_ipython", lambda: None)()


def _show_in_notebook(run: Path) -> None:
    """Build the report of a run, and show it below the cell.

    Raises:
        RuntimeError: it could not be built; the error's text says why.
        OSError: as above.
    """
    shown = Shown(_built(run), (run / _PAGE).read_text(encoding="utf-8"))
    importlib.import_module("IPython.display").display(shown)


def _built(run: Path) -> str:
    """Write the report into the run folder, in a separate process.

    The kernel then does not load the analysis.

    Returns:
        The short report.
    """
    # not the notebook's folder, whose modules may have any name
    path = [place for place in sys.path if place and isinstance(place, str)]
    command = ["report", os.path.abspath(run), "--finish"]
    program = (
        f"import sys; sys.path[:] = {path!a}; from feedline.__main__ import main; "
        f"sys.exit(main({command!a}))"
    )
    surroundings = {name: value for name, value in os.environ.items() if name not in _COLORED}
    surroundings |= {"COLUMNS": str(_WIDTH), "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [sys.executable, "-Wignore", "-c", program],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        env=surroundings,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(
            (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        )
    return done.stdout


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
            command = sys.argv if _shell() is None else ["notebook"]
            session = Session(self._path, command, self._overwrite, self._strict, begins=self._keep)
            if session.refused is not None:
                _report(f"{session.refused.what}, recording into {session.path}")
        except BaseException as error:
            self._end(error)  # ``__exit__`` is not called, where the cell was interrupted here
            if isinstance(error, OutputError):
                error.for_call()
            if self._strict or not isinstance(error, Exception):
                raise
            reraise_of_handler()
            self._sessions.append(None)
            _report(f"not recording: {str(error) or type(error).__name__}")
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
    if _shell() is None:
        say_in_training(f"recorded into {run}; to see it: feedline report {shlex.quote(str(run))}")
        return
    try:
        _show_in_notebook(run)
    except BaseException as error:
        why = (
            "interrupted"
            if isinstance(error, KeyboardInterrupt)
            else str(error) or type(error).__name__
        )
        _report(
            f"recorded into {run}, but the report was not built ({why}); try again with: feedline "
            f"report {shlex.quote(str(run))}"
        )
        if not isinstance(error, Exception):
            raise


def _report(text: str) -> None:
    """Print one line.

    It goes below the cell in a notebook, else on the standard error that the process started with.
    """
    (say_in_training if _shell() is None else say)(text)


class stage:
    """Show a part of the training step as a stage of its own in the report; a context manager and a decorator.

    Example::

        with feedline.stage("mixup"):
            images, labels = mixup(images, labels)

    Costs a few hundred nanoseconds without a recording. Works in the training and in a loader's workers; can be nested and reused.

    Args:
        name: at most 56 bytes. With the name of a built-in stage, such as ``input``, the time is added to that stage. A process keeps
            4,096 names; what has another one is shown as ``stage``.
    """

    def __init__(self, name: str) -> None:
        self._name = str(name)
        self._spans: list[Span | None] = []

    def __enter__(self) -> "stage":
        segment = recorder.segment
        span = None
        if segment is not None:
            number = segment.name_id(self._name, MOST_STAGES)
            span = Span(segment, Stage.USER, number, recorder.batch, name=self._name).__enter__()
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
        value: a number, or a tensor with one element on the CPU. Anything else is left out; one line says so.
    """
    watch = recorder.convergence
    if watch is None:
        return
    try:
        number = float(getattr(value, "detach", lambda: value)())
    except Exception:  # as without a recording, the program goes on
        reraise_of_handler()
        if not _unrecorded:
            _unrecorded.append(str(name))
            _report(f"the metric {name} is not recorded where its value is not a single number")
    else:
        watch.metric(str(name), number)


def on_trace_ready(folder: "str | os.PathLike[str]") -> "Callable[[profile], None]":
    """Return a handler that writes each trace of torch.profiler into a folder, compressed, as ``rank<R>-<step>.json.gz``.

    Example::

        with torch.profiler.profile(on_trace_ready=feedline.on_trace_ready("traces"), schedule=...) as profiler:
            train(profiler)

    Afterwards ``feedline ingest traces/rank*-<step>.json.gz`` shows them; rank 0 prints this command once. Existing files are never
    replaced: the next name is ``rank<R>-<step>.2.json.gz``. If the folder cannot be written to, one line says so; the training continues.

    Args:
        folder: created when the first trace is ready. For ranks on several hosts, use a shared folder.
    """
    return _Writer(Path(folder))


class _Writer:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._said: set[str] = set()

    def __call__(self, profiler: "profile") -> None:
        try:
            written = self._write(profiler)
        except Exception as error:
            reraise_of_handler()
            why = (
                error.strerror if isinstance(error, OSError) else None
            ) or f"{type(error).__name__}: {error}"
            self._say_once(
                "failed",
                f"cannot write the trace into {self._folder} ({why}): name another folder, or "
                f"free some space",
            )
        else:
            if _rank() == 0:
                self._say_once("next", f"next: feedline ingest {written}")

    def _write(self, profiler: "profile") -> Path:
        """Write one trace. Returns the files of all ranks, as a pattern for a shell."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = single.add(
            self._names(f"rank{_rank()}-{profiler.step_num}"),
            lambda part: profiler.export_chrome_trace(str(part)),
            output.SHARED,
        )
        return path.with_name(
            path.name.replace(f"rank{_rank()}-", "rank*-" if _world() > 1 else f"rank{_rank()}-", 1)
        )

    def _names(self, stem: str) -> Iterator[Path]:
        """Yield names for a trace: rank0-5.json.gz, rank0-5.2.json.gz and so on.

        Another process may take itself for the same rank, and write at the same time.
        """
        for number in itertools.count(1):
            yield self._folder / f"{stem}{f'.{number}' if number > 1 else ''}.json.gz"

    def _say_once(self, what: str, text: str) -> None:
        if what not in self._said:
            self._said.add(what)
            say(text)


def _rank() -> int:
    """Return the rank of this process.

    It comes from torch.distributed if it is initialised, else from the launcher's environment.
    """
    return _distributed("get_rank", ranks.place().rank)


def _world() -> int:
    """Return the number of ranks."""
    return _distributed("get_world_size", ranks.place().world_size)


def _distributed(what: str, otherwise: int) -> int:
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(getattr(distributed, what)())
    return otherwise
