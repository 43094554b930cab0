"""``feedline diff``."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from feedline.cli.options import add_output, refuse_twice, share
from feedline.cli.outputs import check_files, console_for, name_files, save
from feedline.cli.runs import run_path
from feedline.profiler.deferred import deferred
from feedline.profiler.errors import OutputError, ScriptError

if TYPE_CHECKING:
    from feedline.analysis.diff.run_diff import RunDiff as Result


class DiffCommand:
    """Compare two runs: what changed, by how much, and whether it is more than noise.

    Compares step times, stages, waits, collectives, CPU time per sample, machine load, settings, the
    findings of both reports, versions and hardware. A change counts if it exceeds both --min-change and the noise of
    the runs. Changes due to slower CPUs or to other programs are listed separately. Run folders that
    `feedline ingest` made from traces can be compared, too.

    Even two runs of the same program differ. To measure by how much, give several runs per side,
    separated by `--`. Ideally, record the sides in turn (A, B, A, B, ...). With one run per side,
    feedline estimates the noise.

    Examples:
        feedline diff runs/before runs/after
        feedline diff runs/a1 runs/a2 runs/a3 -- runs/b1 runs/b2 runs/b3 -o diff.html
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "runs",
            nargs="+",
            type=run_path,
            metavar="RUN",
            help="two run folders, or the runs of A, then `--`, then the runs of B",
        )
        parser.add_argument(
            "--min-change",
            type=share,
            default=0.05,
            metavar="SHARE",
            help="smallest change that counts, such as 0.05 or 5%% (default: 5%%)",
        )
        add_output(parser, "write the comparison as HTML", json="the comparison")

    def run(self, args: argparse.Namespace) -> int:
        before, after = _sides(args.runs, [run_path(word) for word in args.program])
        refuse_twice([*before, *after], "run folder")
        if args.output is not None and args.output.suffix.lower() not in (".html", ".htm"):
            raise OutputError(
                f"{args.output}: the comparison is written as HTML (.html), or as JSON with "
                f"--json FILE"
            )
        check_files(args)

        from feedline.analysis.diff.diff_runs import diff
        from feedline.analysis.diff.measures import compared_run

        _show(
            diff(
                [compared_run(path) for path in before],
                [compared_run(path) for path in after],
                args.min_change,
            ),
            args,
        )
        return 0


def _sides(runs: list[Path], after: list[Path]) -> tuple[list[Path], list[Path]]:
    """Return the runs of A and of B.

    Args:
        runs: those before ``--``, or all.
        after: those after ``--``.

    Raises:
        ScriptError: there are more or fewer than two without ``--``.
    """
    if after:
        return runs, after
    if len(runs) != 2:
        several = "separate the runs of A from those of B with `--`: feedline diff A1 A2 -- B1 B2"
        raise ScriptError(
            "cannot compare a single run: give a second run folder" if len(runs) == 1 else several
        )
    return runs[:1], runs[1:]


def _show(comparison: "Result", args: argparse.Namespace) -> None:
    """Print the comparison, and write it where requested. Raises OutputError."""
    from feedline.analysis.report import document_text
    from feedline.analysis.report.json_report import plain
    from feedline.cli.diff.text import document_of, render

    console = console_for(args)
    document_text.show(document_of(comparison), console)
    written = []
    with deferred():
        if args.output is not None:
            save(args.output, render(comparison))
            written.append(args.output)
        if args.json is not None:
            save(args.json, json.dumps(plain(comparison), indent=1))
            written.append(args.json)
    name_files(console, written)
