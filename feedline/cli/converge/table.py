"""``feedline converge table``."""

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

from feedline.cli.arguments import at_least, listed
from feedline.cli.options import add_old_name, add_output
from feedline.cli.output import check_files, name_files, save
from feedline.profiler.deferred import deferred
from feedline.profiler.errors import Interrupted, OutputError, ScriptError

if TYPE_CHECKING:
    from feedline.convergence.table.arms import Arm
    from feedline.convergence.table.result import Table as Result

ENDINGS = (".html", ".svg")


class Table:
    """Measure every fix on a small training with an 8 times larger batch.

    Trains a convolutional net of 2,500 parameters on MNIST-1D (4,096 samples, generated here) for 12 epochs, with batch 32 and batch
    256. Each arm is compared with its control by Welch's t-test over the seeds; claims that the p values do not support are listed.
    Five seeds take about two minutes on two CPUs.

    Examples:
        feedline converge table --seeds 5
        feedline converge table --seeds 8 --arms E,H,J -o table.html --json table.json
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        arms = parser.add_argument_group("arms")
        arms.add_argument("--seeds", type=at_least(1), default=5, metavar="N", help="number of trainings per arm (default: 5)")
        arms.add_argument("--arms", type=letters, metavar="A,B", help="train only these arms (an unknown letter prints the list)")
        arms.add_argument("--all", action="store_true", help="train all arms, also those that no gate needs")
        running = parser.add_argument_group("running")
        processes = running.add_argument(
            "--processes", type=at_least(1), metavar="N", help="number of trainings at a time (default: one per CPU)"
        )
        add_old_name(running, "--jobs", processes)
        running.add_argument("--check", action="store_true", help="exit with code 1 if a gate fails")
        add_output(parser, "write a page (.html) or only the figure (.svg)", json="the table")

    def run(self, args: argparse.Namespace) -> int:
        check_ending(args.output)
        check_files(args)
        arms = chosen(args.arms, args.all)
        table = measure(arms, args.seeds, args.processes, args.quiet)
        if table is None:
            raise Interrupted("interrupted: no training was finished, so there is no table")

        from feedline.analysis.reports.console import Console
        from feedline.cli.converge.table_text import show

        console = Console(quiet=args.quiet)
        show(table, console)
        if table.interrupted:
            raise Interrupted("interrupted: the table above holds the trainings that were finished; nothing was written")
        with deferred():
            written = write(table, args)
        name_files(console, written)
        return 1 if args.check and any(gate.passed is False for gate in table.gates) else 0


def letters(text: str) -> list[str]:
    """The value of ``--arms``."""
    return [part.upper() for part in listed(text)]


def check_ending(path: Path | None) -> None:
    """Check, before any training, that the file's extension says what to write. Raises OutputError."""
    if path is not None and path.suffix not in ENDINGS:
        raise OutputError(f"{path}: the extension selects what to write: {' or '.join(ENDINGS)} (for JSON: --json FILE)")


def chosen(asked: list[str] | None, everything: bool) -> "list[Arm]":
    """The arms to train, in the order of the table; without Muon if torch lacks it, unless requested.

    Raises:
        ScriptError: there is no such arm.
    """
    from feedline.convergence.table.arms import ARMS, BY_LETTER

    for letter in asked or []:
        if letter not in BY_LETTER:
            known = "\n".join(f"  {arm.letter:3} {arm.name}" for arm in ARMS)
            raise ScriptError(f"--arms: unknown arm {letter!r}; the arms are", known)
    if asked:
        return [arm for arm in ARMS if arm.letter in asked]
    import torch

    can = hasattr(torch.optim, "Muon")  # torch 2.9
    return [arm for arm in ARMS if (everything or arm.core) and (can or arm.optimizer != "muon")]


def measure(arms: "list[Arm]", seeds: int, processes: int | None, quiet: bool) -> "Result | None":
    """Train all arms. After Ctrl-C, the result has the finished trainings; None if there are none.

    Raises:
        MissingDependency: mnist1d is not installed.
    """
    from feedline.cli.work import working
    from feedline.convergence.table import data
    from feedline.convergence.table.race import race
    from feedline.convergence.table.summary import summarize
    from feedline.convergence.table.train import Run
    from feedline.profiler.samplers.cgroup import effective_cpus

    began = time.monotonic()
    made, runs = None, list[Run]()
    try:
        with working(quiet, "making data") as tell:
            made = data.make()
            race(arms, range(seeds), made, processes or max(1, int(effective_cpus())), tell, runs)
    except KeyboardInterrupt:
        if made is None or not runs:
            return None
    return summarize(arms, range(seeds), runs, made, time.monotonic() - began, interrupted=len(runs) < len(arms) * seeds)


def write(table: "Result", args: argparse.Namespace) -> list[Path]:
    """Write the requested files.

    Raises:
        OutputError: a file cannot be written.
    """
    from feedline.cli.converge import table_figure, table_page

    texts: dict[Path, str] = {}
    if args.output is not None:
        page = args.output.suffix == ".html"
        texts[args.output] = table_page.render(table) if page else table_figure.standalone(table)
    if args.json is not None:
        texts[args.json] = json.dumps(table.plain(), indent=1)
    for path, text in texts.items():
        save(path, text)
    return list(texts)
