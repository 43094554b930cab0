"""The settings that ``feedline run`` passes to the processes below it."""

import argparse
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from feedline.profiler.follow.recording_settings import RecordingSettings


@dataclass(frozen=True)
class Start:
    """State that the program may change while it runs, saved before."""

    folder: Path = field(default_factory=Path.cwd)
    python_path: tuple[str, ...] = field(default_factory=lambda: tuple(sys.path))


def asked(args: argparse.Namespace, run: Path, launch: str, start: Start, reports: bool = True) -> "RecordingSettings":
    """The recording that a command line requests.

    Args:
        run: the run folder that was made, with its launch.
        reports: this process makes the report.
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
    )


def _report_options(args: argparse.Namespace, folder: Path) -> tuple[str, ...]:
    options = ["-q"] if args.quiet else []
    options += ["-f"] if args.force else []
    return (*options, *(["--json", str(folder / args.json)] if args.json else []))
