"""Builds the report at the end of a recording, in a process of its own.

It has the modules that feedline started with, and none of the training's memory.
"""

import atexit
import os
import subprocess
import sys
from pathlib import Path

from feedline.profiler import ranks
from feedline.profiler.files.own_folders import LIST_NAME
from feedline.profiler.follow import RUN_VARIABLE, SWITCH_VARIABLE
from feedline.profiler.follow.recording_settings import ON_PATH, RecordingSettings
from feedline.profiler.printable import say_in_training
from feedline.profiler.store.layout import RECORDS_AT, SEGMENTS, main_segment, rank_folder
from feedline.profiler.store.process_log import PROCESSES_FILE

_STDOUT, _STDERR = 1, 2  # file descriptors


def report(recording: RecordingSettings) -> None:
    """Run ``feedline report``, and wait for it. Never raises.

    It takes a second of CPU, so it is skipped with ``-q`` for a run without a record.
    """
    if (
        "-q" in recording.report
        and "--json" not in recording.report
        and ranks.place().world_size == 1
        and _is_empty(Path(recording.run))
    ):
        return
    command = ["report", recording.run, "--finish", "--wait", "20", *recording.report]
    program = (
        f"import sys; sys.path[:] = {recording.path!a}; from feedline.__main__ import "
        f"main; sys.exit(main({command!a}))"
    )
    flags = [*subprocess._args_from_interpreter_flags(), "-Wignore"]  # type: ignore[attr-defined]
    # what `run train.py > log` or `| tool` gets is the training's, byte for byte
    to = _STDOUT if os.isatty(_STDOUT) else _STDERR
    try:
        subprocess.run(
            [sys.executable, *flags, "-c", program],
            stdin=subprocess.DEVNULL,
            stdout=to,
            cwd=recording.folder,
            env=_not_followed(),
            check=False,
        )
    except (OSError, ValueError, KeyboardInterrupt) as error:
        say_in_training(
            f"the report could not be built ({str(error) or type(error).__name__}); try again with: "
            f"feedline report {recording.run}"
        )


def report_what_was_made(recording: RecordingSettings) -> None:
    """Build the report, in the process responsible for it, if a training began in it or below it."""
    if os.getpid() != recording.top:
        return
    if os.path.isdir(recording.run):
        report(recording)
    else:
        say_in_training("nothing was recorded: no training started in this process or its children")


def at_the_end() -> None:
    """Build the report when this process ends: it replaced the process responsible for it."""
    recording = RecordingSettings.read()
    if recording is not None:
        atexit.register(report_what_was_made, recording)


def _not_followed() -> dict[str, str]:
    """Return the environment without the variables that ``RecordingSettings.variables`` added."""
    environ = {
        name: value
        for name, value in os.environ.items()
        if name not in (RUN_VARIABLE, SWITCH_VARIABLE)
    }
    path = [part for part in environ.get("PYTHONPATH", "").split(os.pathsep) if part != ON_PATH]
    if "PYTHONPATH" in environ:
        environ["PYTHONPATH"] = os.pathsep.join(path)
    if not any(path):
        environ.pop("PYTHONPATH", None)
    return environ


def _is_empty(run: Path) -> bool:
    """Return whether rank 0 has ended without a record, and no other process recorded into the run."""
    rank = rank_folder(run, 0)
    main = main_segment(rank)
    try:
        alone = set(os.listdir(run)) <= {LIST_NAME, rank.name, PROCESSES_FILE} and set(
            os.listdir(rank / SEGMENTS)
        ) <= {
            LIST_NAME,
            main.name,
        }
        return alone and main.stat().st_size <= RECORDS_AT
    except OSError:
        return False
