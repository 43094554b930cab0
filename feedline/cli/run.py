"""``feedline run``: records a script, or a command that starts processes which train."""

import argparse
import errno
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from feedline.cli.interrupt import SAME_S, in_foreground
from feedline.cli.options import add_output, at_least
from feedline.cli.outputs import check_json, default_folder
from feedline.cli.parser import is_launcher
from feedline.cli.program import (
    PackageFailed,
    Program,
    exit_like,
    from_module,
    from_script,
    show,
    threads_go_on,
    wait_for_threads,
)
from feedline.cli.settings import OVERRIDES, add_settings, as_code
from feedline.profiler import masks
from feedline.profiler.errors import FeedlineError, FixError, OutputError, PlaceTaken, ScriptError
from feedline.profiler.printable import say_in_training
from feedline.profiler.session.ending import Ending

if TYPE_CHECKING:
    from feedline.convergence.apply import FixInjector
    from feedline.profiler.follow.recording_settings import RecordingSettings
    from feedline.profiler.record.detail import ProfilerWindow
    from feedline.profiler.samplers.processes import UnfollowedProcesses
    from feedline.profiler.session.hooks import Hooks
    from feedline.profiler.session.overrides import Overrides
    from feedline.profiler.session.session import Session

#: stands for ``--`` while argparse looks at a command line: no argument can hold a null byte
DASHES = "\0--"
_POLL_S = 1.0  # between looks at the processes below
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
# exit code of a command that a signal ended, less the signal's number, as a shell gives it
_SIGNAL_EXIT = 128


@dataclass(frozen=True)
class _Start:
    """The state that the program may change while it runs, saved before."""

    folder: Path = field(default_factory=Path.cwd)
    python_path: tuple[str, ...] = field(default_factory=lambda: tuple(sys.path))


def _recording_request(
    args: argparse.Namespace, run: Path, launch: str, start: _Start, reports: bool = True
) -> "RecordingSettings":
    """Return the recording that a command line requests.

    Args:
        args: the command line.
        run: the run folder that was made.
        launch: the launch that the folder belongs to.
        start: the state at the start.
        reports: whether this process makes the report.
    """
    from feedline.profiler.follow.recording_settings import RecordingSettings

    return RecordingSettings(
        top=os.getpid() if reports else 0,
        run=str(run),
        launch=launch,
        every=args.sample_interval,
        window=None if args.torch_profiler is None else str(args.torch_profiler),
        record_argv=args.record_argv,
        report=_report_options(args, start.folder),
        folder=str(start.folder),
        path=start.python_path,
        settings=args.settings,
        made_at=args.set_at,
        strict=args.strict,
        stop_after=args.stop_after,
        stacks=args.stacks,
    )


def _report_options(args: argparse.Namespace, folder: Path) -> tuple[str, ...]:
    options = ["-q"] if args.quiet else []
    options += ["-f"] if args.force else []
    return (*options, *(["--json", str(folder / args.json)] if args.json else []))


class RunCommand:
    """Record an unmodified training and report what limits it.

    Put feedline's options before SCRIPT. Everything after SCRIPT is passed to the script. When the
    training ends, feedline prints the report and writes it into the run folder. The exit code is the
    training's own. Without --fix or --set, the training is unchanged.

    Examples:
        feedline run train.py --epochs 3
        feedline run -- torchrun --nproc-per-node 8 train.py    # any command that starts a training
        torchrun --nproc-per-node 8 -m feedline run train.py
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "-m", "--module", action="store_true", help="SCRIPT is a module name, as in `python -m`"
        )
        parser.add_argument(
            "script",
            metavar="SCRIPT",
            help="training script, or any command if `--` comes before it",
        )
        parser.add_argument(
            "args", metavar="...", nargs=argparse.REMAINDER, help="arguments of the script"
        ).required = False
        _add_recording(parser.add_argument_group("recording"))
        _add_changes(parser.add_argument_group("changing the training"))
        add_output(
            parser,
            "run folder to create (default: runs/SCRIPT-TIME)",
            metavar="RUN",
            json="the report",
            prints=False,
            force="overwrite an existing run folder and the --json file",
            quiet="do not print the report, only write it into the run folder",
        )

    def run(self, args: argparse.Namespace) -> int:
        start, dashes = _Start(), args.script == DASHES
        args.script, *args.args = _script_of([args.script, *args.args])
        if (dashes or _is_launcher(args)) and _is_command([args.script]):
            return _run_command(args, [args.script, *args.args])
        try:
            program = (from_module if args.module else from_script)(args.script, args.args)
        except (SyntaxError, ValueError) as error:  # ValueError: a null byte, before Python 3.12
            show(error.with_traceback(None))
            return 1
        except PackageFailed as failed:
            show(failed.__cause__)
            return exit_like(failed.__cause__)

        from feedline.profiler import ranks
        from feedline.profiler.follow import start as python_start
        from feedline.profiler.follow.noticing import follow
        from feedline.profiler.follow.reporting import report
        from feedline.profiler.session.overrides import Overrides

        fixes = _Fixes(args.fix) if args.fix is not None else None
        overrides = Overrides(args.settings, args.set_at, args.strict) if args.settings else None
        changes = [change for change in (fixes, overrides) if change is not None]

        name = Path(args.script).stem if not args.module else args.script.rsplit(".", 1)[-1]
        path = start.folder / (args.output or default_folder(name, ranks.started_at()))
        first = ranks.place().rank == 0
        if first:
            _check_json_file(args)
        try:
            session = _session(args, path, changes)
        except Exception as error:
            # whatever is wrong with recording, the training runs; but not without a change that was
            # asked for
            if args.strict or changes:
                raise
            say_in_training(f"not recording: {error}")
            return _run_unrecorded(program)
        if first:
            _say_start(session, path, fixes, overrides, args.quiet)
        recording = _recording_request(args, session.path, session.manifest.launch, start, first)
        python_start.stop()
        follow(recording, session, overrides)
        ended = _run_recorded(program)
        if session.is_mine:
            _say_not_applied(
                {name: why for change in changes for name, why in change.failed.items()}
            )
            if first:
                report(recording)
        return exit_like(ended)


def _session(
    args: argparse.Namespace, path: Path, changes: "list[_Fixes | Overrides]"
) -> "Session":
    """Begin to record into this folder, with the changes that were asked for."""
    from feedline.profiler.session.session import Session
    from feedline.profiler.session.stop_after import StopAfter

    return Session(
        path,
        [args.script, *args.args],
        args.force,
        args.strict,
        args.sample_interval,
        args.torch_profiler,
        changes,
        args.record_argv,
        follows=True,
        stop_after=StopAfter.parse(args.stop_after) if args.stop_after else None,
        stacks=args.stacks,
    )


def _add_recording(group: argparse._ActionsContainer) -> None:
    """Add the options for what is recorded."""
    group.add_argument(
        "--sample-interval",
        type=at_least(1),
        metavar="N",
        help="time stages, such as decode, in every Nth sample (default: N chosen to add about 5 us "
        "per sample on average)",
    )
    group.add_argument(
        "--torch-profiler",
        type=_window,
        metavar="SKIP:ACTIVE",
        help="profile ACTIVE steps with torch.profiler, after SKIP steps and one warm-up step, or "
        "`off` (default: 20:5 on a GPU, else off)",
    )
    group.add_argument(
        "--record-argv",
        choices=("masked", "all", "none"),
        default="masked",
        help="masked: hide arguments of the script that may be private (default). all: store "
        "secrets, too. none: store no arguments",
    )
    group.add_argument(
        "--no-stacks",
        dest="stacks",
        action="store_false",
        help="do not sample stacks: the report then names fewer lines. Sampling takes at most 2 %% of "
        "the training's CPU time for 15 s, then 0.5 %%",
    )
    group.add_argument(
        "--strict",
        action="store_true",
        help="do not start the training if it cannot be recorded as requested. If --set fails in it, "
        "raise an error",
    )
    group.add_argument("--stop-after", default="", type=_stop_after, help=argparse.SUPPRESS)


def _add_changes(group: argparse._ActionsContainer) -> None:
    """Add the options that change the training."""
    group.add_argument(
        "--fix",
        metavar="NAME=VALUE,...",
        help="apply large-batch fixes, such as warmup=5ep,lr_rule=sqrt (all: docs/convergence.md in a "
        "clone). For the fix of a finding, use --set",
    )
    add_settings(
        group,
        OVERRIDES,
        "change arguments of the DataLoader, such as num_workers=4,persistent_workers=true, or "
        "feedline's own worker_threads=N, which limits torch and OpenCV in each worker",
    )
    group.add_argument(
        "--set-at",
        default="",
        metavar="FILE:LINE",
        help="change only the DataLoader created at this line (default: all that shuffle or read "
        "an IterableDataset. Evaluation loaders rarely do)",
    )


def _script_of(words: list[str]) -> list[str]:
    """Return the script and its arguments, with each ``--`` as typed.

    A ``--`` before the script is feedline's.

    Raises:
        ScriptError: nothing but a ``--``.
    """
    typed = ["--" if word == DASHES else word for word in words]
    if typed[0] == "--":
        typed = typed[1:]
    if not typed:
        raise ScriptError(
            "no script given: add the path of the training script, followed by its arguments"
        )
    return typed


class _Fixes:
    """The fixes requested with ``--fix``.

    Raises:
        FixError: it cannot be.
    """

    def __init__(self, text: str) -> None:
        from feedline.convergence.apply import parse_fixes

        self.text, self._requests = text, parse_fixes(text)
        self._outside: FixInjector | None = None

    def lines(self) -> str:
        """Return the lines that would make the fixes permanent."""
        return "\n\n".join(
            f"{request.text}: {request.fix.summary}. To keep it, write:\n\n{request.lines}"
            for request in self._requests
        )

    def attach(self, hooks: "Hooks") -> None:
        """Apply the fixes once torch is imported."""

        def attach_fixes() -> None:
            from feedline.convergence.apply import FixInjector

            outside = self._outside = FixInjector(hooks.report)
            hooks.attach(
                "fixes", "the training is changed", partial(outside.attach, self._requests)
            )

        hooks.when_imported("torch", attach_fixes)

    def setup(self) -> dict[str, object]:
        """Return the fixes, and those that were not applied, for the manifest."""
        return {
            "fixes": self.text,
            "fixes_failed": {name: masks.text(why) for name, why in self.failed.items()},
        }

    @property
    def failed(self) -> dict[str, str]:
        """Return fixes that were not applied, with the reason."""
        return (
            {"--fix": "the program never imported torch"}
            if self._outside is None
            else self._outside.failed
        )


def _say_start(
    session: "Session",
    requested: Path,
    fixes: _Fixes | None,
    overrides: "Overrides | None",
    quiet: bool,
) -> None:
    """Say where it is recorded, and what is changed."""
    if session.refused is not None:
        say_in_training(_folder_message(session.refused, requested, session.path))
    elif not quiet:
        say_in_training(f"recording into {os.path.relpath(requested)}")
    if fixes is not None and not quiet:
        say_in_training(fixes.lines(), lines=True)
    if overrides is not None and not quiet:
        say_in_training(f"changing the training's DataLoader: {overrides.text}")


def _say_not_applied(failed: dict[str, str]) -> None:
    """Say which changes were not applied, and why."""
    if failed:
        reasons = "; ".join(f"{name}: {why}" for name, why in failed.items())
        say_in_training(f"these changes were not applied, or only in part: {reasons}")


def _window(text: str) -> "ProfilerWindow":
    """Parse the value of ``--torch-profiler``."""
    from feedline.profiler.record.detail import ProfilerWindow

    try:
        return ProfilerWindow.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _stop_after(text: str) -> str:
    """Check the value of ``--stop-after``."""
    from feedline.profiler.session.stop_after import StopAfter

    try:
        if text:  # the default
            StopAfter.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def _check_json_file(args: argparse.Namespace) -> None:
    """Check, before the training, that FILE of ``--json`` is free.

    An existing file is left alone and does not stop the training.

    Raises:
        OutputError: --strict was given.
    """
    try:
        check_json(args)
    except OutputError as error:
        if args.strict:
            raise
        say_in_training(f"--json is ignored: {error}")
        args.json = None


def _run_unrecorded(program: Program) -> int:
    """Run the program as Python would, and return its exit code."""
    ended: BaseException | None = None
    try:
        program.run()
    except BaseException as error:
        ended = error
    show(ended)
    return exit_like(ended)


def _run_recorded(program: Program) -> BaseException | None:
    """Run the program, and end the recording however it ends; return what it raised and is shown.

    A fork of it may also return here.
    """
    from feedline.profiler.follow import noticing

    ended: BaseException | None = None
    try:
        program.run()
    except BaseException as error:
        ended = error
        _hear_of_no_workers()
    if threads_go_on():  # and may train
        show(ended)
        wait_for_threads()
        noticing.end(Ending.of(ended))
    else:
        noticing.end(Ending.of(ended))
        show(ended)  # with the program's sys.excepthook, which may end the process
    return ended


def _hear_of_no_workers() -> None:
    """Keep torch from raising an error for a loader's worker where the program has failed already.

    It raises one, once, wherever the main thread then is, when it hears that a worker was killed:
    that may be after the main process has failed to receive a batch of it.
    """
    for _ in range(2):
        with suppress(Exception):
            handler = signal.getsignal(signal.SIGCHLD)
            if getattr(handler, "__module__", "") == _TORCHS_HANDLER:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return


_TORCHS_HANDLER = "torch.utils.data._utils.signal_handling"


def _is_launcher(args: argparse.Namespace) -> bool:
    """Return whether SCRIPT is a program such as torchrun, for which ``--`` was forgotten."""
    return not args.module and is_launcher(args.script) and not os.path.exists(args.script)


def _is_command(words: list[str]) -> bool:
    """Return whether the words after ``--`` are a command, and not a script and its arguments."""
    return shutil.which(words[0]) is not None


def _run_command(args: argparse.Namespace, command: list[str]) -> int:
    """Run a command, report the trainings below it, and return its exit code.

    Raises:
        FixError: it was given, but only a script can have it.
        ScriptError: so was ``-m``, or the command cannot be started.
        OutputError: with ``--strict`` or ``--set``: nothing can be recorded, so nothing can be
            changed either.
    """
    if args.fix is not None:
        with_ranks = "torchrun ... -m feedline run --fix ... train.py"
        raise FixError(
            f"--fix needs a script, not a command: feedline run --fix ... train.py, or with "
            f"ranks: {with_ranks}"
        )
    if args.module:
        raise ScriptError("-m takes a module and `--` takes a command: use only one of them")
    from feedline.profiler import ranks
    from feedline.profiler.files import own_folders
    from feedline.profiler.follow.reporting import report_what_was_made
    from feedline.profiler.samplers.processes import UnfollowedProcesses
    from feedline.profiler.session.session import run_folder

    start, launch = _Start(), f"command-{os.getpid()}-{ranks.started_at()}"
    path = start.folder / (args.output or default_folder(Path(command[0]).stem, ranks.started_at()))
    try:
        (run, hold), refused = run_folder(path, launch, args.force, args.strict)
    except OutputError as error:
        if args.strict or args.settings:
            raise
        say_in_training(f"not recording: {error}")
        return _wait_for(_started(command, os.environ), None)
    if refused is not None:
        say_in_training(_folder_message(refused, path, run))
    elif not args.quiet:
        say_in_training(f"recording into {os.path.relpath(run)}")
    if args.settings and not args.quiet:
        say_in_training(f"changing the training's DataLoader: {as_code(args.settings)}")
    recording = _recording_request(args, run, launch, start)
    try:
        process = _started(command, {**os.environ, **recording.variables(os.environ)})
    except ScriptError:
        hold.release()
        with suppress(OSError, OutputError):
            own_folders.remove(run, "run")
        raise
    code = _wait_for(process, UnfollowedProcesses(run, args.record_argv))
    if code > _SIGNAL_EXIT:
        _write_signal(run, process.pid, code - _SIGNAL_EXIT)
    hold.release()
    report_what_was_made(recording)
    return code


def _started(command: list[str], environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    """Start a command as a shell does.

    It gets the descriptors that this process was given, such as that of ``--config <(...)``. A
    script without ``#!`` is run by sh.

    Raises:
        ScriptError: the system refuses to start it.
    """

    def start(words: list[str]) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(words, env=environment, close_fds=False)

    try:
        try:
            return start(command)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            return start(["/bin/sh", shutil.which(command[0]) or command[0], *command[1:]])
    except OSError as error:
        missing = "the program that its first line names does not exist"
        why = missing if error.errno == errno.ENOENT else error.strerror
        raise ScriptError(f"cannot start the command {command[0]}: {why}") from error


def _folder_message(refused: PlaceTaken, path: Path, run: Path) -> str:
    """Return the message for a run folder that differs from the requested one."""
    return (
        f"{refused.what.replace(str(path), os.path.relpath(path))}, recording into "
        f"{os.path.relpath(run)}"
    )


def _write_signal(run: Path, pid: int, number: int) -> None:
    """Write into the run folder which signal killed the command.

    That is if the command was the training process itself, which could not write it.
    """
    from feedline.profiler.store.trainings import trainings

    with suppress(FeedlineError, OSError, ValueError):
        for rank in (rank for training in trainings(run) for rank in training.run.ranks.values()):
            if rank.manifest.pid == pid and not rank.manifest.ended:
                rank.manifest.ended_by = signal.Signals(number).name
                rank.manifest.write(rank.folder)


def _wait_for(process: "subprocess.Popen[bytes]", below: "UnfollowedProcesses | None") -> int:
    """Wait for a command, and forward signals, unless a terminal has sent them to it too.

    Who sends SIGINT to the whole group sends it twice: here it counts once.
    """
    forwarded_s = -math.inf

    def forward(number: int, frame: FrameType | None) -> None:
        nonlocal forwarded_s
        if number == signal.SIGINT:
            if in_foreground() or time.monotonic() - forwarded_s < SAME_S:
                return
            forwarded_s = time.monotonic()
        with suppress(PermissionError):  # of another user
            process.send_signal(number)

    before = {number: signal.signal(number, forward) for number in _FORWARDED}
    try:
        while True:
            try:
                code = process.wait(_POLL_S)
                return code if code >= 0 else _SIGNAL_EXIT - code
            except subprocess.TimeoutExpired:
                if below is not None:
                    below.read()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
