"""``feedline run -- COMMAND``: runs a launcher, a shell script or a notebook that starts processes which train."""

import argparse
import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from feedline.cli.output import below_runs
from feedline.cli.recording import Start, asked
from feedline.cli.settings import as_code
from feedline.profiler.errors import FeedlineError, FixError, OutputError, PlaceTaken, ScriptError
from feedline.profiler.printable import say_in_training

if TYPE_CHECKING:
    from feedline.profiler.samplers.processes import UnfollowedProcesses

_LOOK_S = 1.0  # between looks at the processes below
_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_KILLED = 128  # exit code of a command that a signal ended, less the signal's number, as a shell gives it


def is_command(words: list[str]) -> bool:
    """Whether the words after ``--`` are a command; else they are a script and its arguments."""
    return shutil.which(words[0]) is not None


def run_command(args: argparse.Namespace, command: list[str]) -> int:
    """Run a command, and report the trainings below it. Returns its exit code.

    Raises:
        FixError, ScriptError: it is asked for what only a script can have.
        OutputError: with ``--strict`` or ``--set``: nothing can be recorded, so nothing can be changed either.
    """
    if args.fix is not None:
        with_ranks = "torchrun ... -m feedline run --fix ... train.py"
        raise FixError(f"--fix needs a script, not a command: feedline run --fix ... train.py, or with ranks: {with_ranks}")
    if args.module:
        raise ScriptError("-m takes a module and `--` takes a command: use only one of them")
    from feedline.profiler import ranks
    from feedline.profiler.follow.reporting import report_what_was_made
    from feedline.profiler.samplers.processes import UnfollowedProcesses
    from feedline.profiler.session.session import run_folder

    start, launch = Start(), f"command-{os.getpid()}-{ranks.started_at()}"
    path = start.folder / (args.output or below_runs(Path(command[0]).stem, ranks.started_at()))
    try:
        (run, hold), refused = run_folder(path, launch, args.force, args.strict)
    except OutputError as error:
        if args.strict or args.settings:
            raise
        say_in_training(f"not recording: {error}")
        return _ended(subprocess.Popen(command), None)
    if refused is not None:
        say_in_training(elsewhere(refused, path, run))
    elif not args.quiet:
        say_in_training(f"recording into {os.path.relpath(run)}")
    if args.settings and not args.quiet:
        say_in_training(f"changing the training's DataLoader: {as_code(args.settings)}")
    recording = asked(args, run, launch, start)
    process = subprocess.Popen(command, env={**os.environ, **recording.variables(os.environ)})
    code = _ended(process, UnfollowedProcesses(run, args.record_argv))
    if code > _KILLED:
        _tell_signal(run, process.pid, code - _KILLED)
    hold.release()
    report_what_was_made(recording)
    return code


def elsewhere(refused: PlaceTaken, path: Path, run: Path) -> str:
    """The message for a run folder that differs from the requested one."""
    return f"{refused.what.replace(str(path), os.path.relpath(path))}, recording into {os.path.relpath(run)}"


def _tell_signal(run: Path, pid: int, number: int) -> None:
    """Record in the run folder which signal killed the command, if that was the training process itself, which could not."""
    from feedline.profiler.store.trainings import trainings

    with suppress(FeedlineError, OSError, ValueError):
        for rank in (rank for one in trainings(run) for rank in one.run.ranks.values()):
            if rank.manifest.pid == pid and not rank.manifest.ended:
                rank.manifest.ended_by = signal.Signals(number).name
                rank.manifest.write(rank.folder)


def _ended(process: "subprocess.Popen[bytes]", below: "UnfollowedProcesses | None") -> int:
    """Wait for a command, and forward signals. A terminal sends Ctrl-C to all processes, so it needs no forwarding."""

    def hand_on(number: int, frame: FrameType | None) -> None:
        process.send_signal(number)

    before = {number: signal.signal(number, hand_on) for number in _FORWARDED}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        while True:
            try:
                code = process.wait(_LOOK_S)
                return code if code >= 0 else _KILLED - code
            except subprocess.TimeoutExpired:
                if below is not None:
                    below.read()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
