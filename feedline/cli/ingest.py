"""``feedline ingest``."""

import argparse
import os
from contextlib import suppress
from itertools import combinations
from pathlib import Path

from feedline.cli.options import add_output, add_rank_pool, at_least, rank_pool, refuse_twice
from feedline.cli.outputs import check_json, default_folder, progress_bar
from feedline.profiler import masks
from feedline.profiler.errors import (
    Interrupted,
    PlaceTaken,
    RankCollision,
    ScriptError,
    TraceDamaged,
)
from feedline.profiler.files import single
from feedline.profiler.files.own_folders import MAX_NAMED
from feedline.profiler.message import few
from feedline.profiler.printable import say


class IngestCommand:
    """Read traces of torch.profiler, Nsight Systems, rocprof, JAX or TensorFlow.

    Makes one run folder from the traces (one trace per rank) and prints its report. The report shows
    input stalls, communication that computing does not hide, and which rank the others wait for. A trace that cannot be
    read is named and skipped, and the exit code is then 65.

    Export reports of Nsight Systems first:
      nsys export --type sqlite report.nsys-rep

    Examples:
        feedline ingest traces/rank*.json.gz -o runs/eight
        feedline ingest a.json b.json --rank a.json=0 --rank b.json=1
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "file",
            nargs="+",
            metavar="FILE",
            help="path of a trace. JSON may also be at an address that fsspec can open (s3://...)",
        )
        reading = parser.add_argument_group("reading")
        reading.add_argument(
            "--rank",
            action="append",
            default=[],
            metavar="FILE=N",
            help="rank of FILE, if the trace does not name it (may be repeated). If FILE has several "
            "ranks, N is the first, N+1 the next",
        )
        reading.add_argument(
            "--max-events",
            type=at_least(1, 10**12),
            metavar="EVENTS",
            help="skip traces with more than EVENTS events (default: 100,000,000)",
        )
        add_rank_pool(reading)
        add_output(
            parser,
            "run folder to create (default: runs/FILE-TIME)",
            metavar="RUN",
            json="the report",
            force="overwrite an existing run folder and the --json file",
            quiet="only create the run folder (`feedline report RUN` shows it later)",
        )

    def run(self, args: argparse.Namespace) -> int:
        output = args.output or default_folder(masks.file_name(args.file[0]).split(".")[0])
        ranks = _parse_ranks(args.rank, args.file)
        refuse_twice(args.file, "trace")
        _refuse_copies(args.file)
        check_json(args)
        older = _number_of(output)
        if older is not None and not args.force:
            raise PlaceTaken.exists(output)

        from feedline.analysis.ranks.ingest_traces import ingest
        from feedline.analysis.traces.trace_columns import DEFAULT, TraceLimits
        from feedline.cli.report import show_run

        limits = TraceLimits.of(args.max_events) if args.max_events else DEFAULT
        problems: dict[str, str] = {}
        try:
            with (
                rank_pool(args, len(args.file)) as pool,
                progress_bar(args.quiet) as report_progress,
            ):
                problems = ingest(
                    args.file,
                    output,
                    pool,
                    ranks,
                    limits,
                    ["feedline", "ingest", *args.file],
                    report_progress,
                    args.force,
                ).problems
            for problem in problems.values():
                say(f"skipped: {problem}")
            if not args.quiet or args.json:
                show_run(output, *_report_options(args))
        except KeyboardInterrupt as error:
            if _number_of(output) in (None, older) or os.path.lexists(output / "report.json"):
                raise
            raise Interrupted(
                f"interrupted: {output} holds the traces but no report yet; feedline report "
                f"{output} writes it"
            ) from error
        return TraceDamaged.exit_code if problems else 0


def _report_options(args: argparse.Namespace) -> list[str]:
    """Return the options of ``feedline report`` that were given."""
    flags = ["--force"] * args.force + ["--quiet"] * args.quiet
    return [*flags, *([f"--json={args.json}"] if args.json else [])]


def _refuse_copies(files: list[str]) -> None:
    """Check that no trace is given as two identical files: two ranks never record the same times.

    Raises:
        RankCollision: one is.
    """
    import filecmp

    sizes: dict[int, list[str]] = {}
    for file in files:
        if single.is_regular(Path(file)):
            sizes.setdefault(os.path.getsize(file), []).append(file)
    for first, second in (pair for files in sizes.values() for pair in combinations(files, 2)):
        with suppress(OSError):
            if filecmp.cmp(first, second, shallow=False):
                raise RankCollision(
                    f"{first} and {second} are the same trace: give only one of them"
                )


def _number_of(run: Path) -> int | None:
    """Return what tells a run folder from the one that replaces it; None: nothing is there."""
    with suppress(OSError):
        return os.lstat(run).st_ino
    return None


def _parse_ranks(given: list[str], files: list[str]) -> dict[str, int]:
    """Parse the ranks given with ``--rank FILE=N``.

    Args:
        given: the values of ``--rank``.
        files: the traces: their paths, or their names without the folders.

    Raises:
        ScriptError: a value does not have this form, its file is not among the traces, or it says
            two ranks.
    """
    from feedline.profiler.files.checking import MOST_RANKS

    ranks: dict[str, int] = {}
    for text in given:
        file, _, number = text.rpartition("=")
        if not file or not number.isdecimal() or not len(number) <= 20 or int(number) >= MOST_RANKS:
            raise ScriptError(
                f"--rank {text}: expected FILE=N, where N is a rank below {MOST_RANKS:,}"
            )
        if file not in files and file not in map(os.path.basename, files):
            raise ScriptError(
                f"--rank {text}: {file} is not one of the given traces ({few(files, MAX_NAMED)})"
            )
        if ranks.setdefault(file, int(number)) != int(number):
            raise ScriptError(
                f"--rank {text}: {file} already has rank {ranks[file]}: give each trace one rank"
            )
    return ranks
