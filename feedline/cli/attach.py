"""``feedline attach``."""

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from feedline.cli.options import add_output, at_least, positive
from feedline.cli.outputs import check_json, console_for, name_files, save_json
from feedline.profiler.files import results

if TYPE_CHECKING:
    from feedline.analysis.explain.attached import Attached

_NAMES = ("attached.json", "stacks.collapsed", "stacks.speedscope.json")  # report reads the first
_SECONDS = 30.0
_NICE = 19  # what is done after the training was watched gives way to it


class AttachCommand:
    """Inspect a training that is already running.

    Prints what the training waits for, and the function and line where its workers spend most of
    their time. If the training hangs, feedline says which process waits for which, and where. PID
    may be that of a launcher: feedline then watches all ranks on this host.

    The training is neither modified nor paused. Its user or root can attach. If only root may
    (common), use sudo. To see samples/s and what a fix would gain, record the training with
    `feedline run`. `feedline report FOLDER` shows what -o wrote.

    Examples:
        feedline attach 4711
        feedline attach 4711 --seconds 10 -o seen
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "pid", type=at_least(1), metavar="PID", help="process of the training, or its launcher"
        )
        parser.add_argument(
            "--seconds",
            type=positive,
            default=_SECONDS,
            metavar="S",
            help="how many seconds to watch (default: 30)",
        )
        add_output(
            parser,
            "write the result here, with stacks for speedscope and flame graphs",
            metavar="FOLDER",
            json="the result",
        )

    def run(self, args: argparse.Namespace) -> int:
        check_json(args)
        new = args.output is not None and results.prepare(args.output, _NAMES, args.force)
        from feedline.profiler.attach.watch import watch

        try:
            watched = watch(args.pid, args.seconds)
        except BaseException:
            if new:
                results.drop_empty(args.output)
            raise
        os.nice(_NICE)

        from feedline.analysis.explain.attached import Attached
        from feedline.analysis.report.document_text import show
        from feedline.analysis.report.json_report import plain
        from feedline.analysis.report.of_attached import document

        seen = Attached.of(watched)
        console = console_for(args)
        show(document(seen.report, seen.line_at), console)
        files = [] if args.json is None else [args.json]
        if args.json is not None:
            save_json(args.json, plain(seen.report))
        if args.output is not None:
            files += _save_folder(args.output, seen)
        name_files(console, files)
        return 0


def _save_folder(folder: Path, seen: "Attached") -> list[Path]:
    """Write what was seen into a folder that was prepared; return the files. Raises OutputError."""
    from feedline.analysis.report.json_report import plain
    from feedline.analysis.report.stack_files import collapsed, speedscope

    texts = (
        json.dumps(plain(seen.report), indent=1),
        collapsed(seen.stacks),
        speedscope(seen.stacks, seen.report.name),
    )
    return [results.save(folder, name, text) for name, text in zip(_NAMES, texts)]
