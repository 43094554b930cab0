"""``feedline converge table``."""

import argparse
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from feedline.cli.arguments import at_least, listed
from feedline.profiler.deferred import deferred
from feedline.profiler.errors import Interrupted, OutputError, ScriptError
from feedline.profiler.files import output

if TYPE_CHECKING:
    from feedline.convergence.table.arms import Arm
    from feedline.convergence.table.result import Table as Result

ENDINGS = (".html", ".svg")


class Table:
    """What does a batch eight times as large cost, and what does each fix give back? Trains a small model in every way, here.

    feedline converge table --seeds 5
    feedline converge table --seeds 5 --json table.json -o table.html
    feedline converge table --arms E,H,J --seeds 8

    A convolutional net of 2,500 parameters on MNIST-1D (4,096 samples, made here), 12 epochs, batch 32 against 256. Every arm is compared
    with its control by Welch's test over the seeds; what the p values do not support is said, too. Two cores take about two minutes for
    five seeds.
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--seeds", type=at_least(1), default=5, metavar="N", help="trainings of each arm (default 5)")
        parser.add_argument("--arms", type=letters, metavar="A,B", help="only these; an unknown letter lists them all")
        parser.add_argument("--all", action="store_true", help="all arms, also those that are not needed for the gates")
        parser.add_argument("--jobs", type=at_least(1), metavar="N", help="processes (default: one per core)")
        parser.add_argument("--check", action="store_true", help="exit with 1 if a gate fails")
        parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write a page (.html) or the figure alone (.svg)")
        parser.add_argument("-f", "--force", action="store_true", help="overwrite what is there")
        parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures as JSON")
        parser.add_argument("-q", "--quiet", action="store_true", help="no progress, and no table in the terminal")

    def run(self, args: argparse.Namespace) -> int:
        writable(args)
        arms = chosen(args.arms, args.all)
        table = measure(arms, args.seeds, args.jobs, args.quiet)
        if table is None:
            raise Interrupted("interrupted before the first training ended: no table was made")

        from feedline.analysis.reports.console import Console
        from feedline.cli.converge.table_text import show

        console = Console(quiet=args.quiet)
        show(table, console)
        if table.interrupted:
            raise Interrupted("interrupted: the table above has what was done by then; nothing was written")
        with deferred():
            written = write(table, args)
        for path in written:
            console.print(f"  {os.path.relpath(path)}", soft_wrap=True)
        return 1 if args.check and any(gate.passed is False for gate in table.gates) else 0


def letters(text: str) -> list[str]:
    """The value of ``--arms``."""
    return [part.upper() for part in listed(text)]


def writable(args: argparse.Namespace) -> None:
    """Refuse before the training what could not be written after it.

    Raises:
        OutputError: a file is there already, its ending says nothing, or its folder is not there.
    """
    if args.output is not None and args.output.suffix not in ENDINGS:
        raise OutputError(f"{args.output}: the ending chooses what is written: {' or '.join(ENDINGS)} (JSON: --json)")
    for path in (args.output, args.json):
        output.refuse_taken(path, args.force)


def chosen(asked: list[str] | None, everything: bool) -> "list[Arm]":
    """The arms to train, in the order of the table; without Muon where torch has none and nobody asked for it.

    Raises:
        ScriptError: there is no such arm.
    """
    from feedline.convergence.table.arms import ARMS, BY_LETTER

    for letter in asked or []:
        if letter not in BY_LETTER:
            known = "\n".join(f"  {arm.letter:3} {arm.name}" for arm in ARMS)
            raise ScriptError(f"--arms: there is no arm {letter!r}; the arms are", known)
    if asked:
        return [arm for arm in ARMS if arm.letter in asked]
    import torch

    can = hasattr(torch.optim, "Muon")  # torch 2.9
    return [arm for arm in ARMS if (everything or arm.core) and (can or arm.optimizer != "muon")]


def measure(arms: "list[Arm]", seeds: int, jobs: int | None, quiet: bool) -> "Result | None":
    """Train them all; Ctrl-C ends it with what is done, None: nothing is.

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
            race(arms, range(seeds), made, jobs or max(1, int(effective_cpus())), tell, runs)
    except KeyboardInterrupt:
        if made is None or not runs:
            return None
    return summarize(arms, range(seeds), runs, made, time.monotonic() - began, interrupted=len(runs) < len(arms) * seeds)


def write(table: "Result", args: argparse.Namespace) -> list[Path]:
    """Write what was asked for.

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
        output.save(path, text)
    return list(texts)
