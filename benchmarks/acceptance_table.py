"""What a batch eight times as large costs a small training, and what each fix gives back.

python benchmarks/acceptance_table.py --seeds 5 --json table.json -o convergence-table.svg
"""

import argparse
import json
import time
from pathlib import Path

import torch
from acceptance import data
from acceptance.arms import ARMS, BY_LETTER, Arm
from acceptance.figure import standalone
from acceptance.race import race
from acceptance.result import Table
from acceptance.summary import summarize
from acceptance.text import document_of
from acceptance.train import Run

from feedline.analysis.report import document_text
from feedline.analysis.report.console import Console
from feedline.cli.options import at_least, name_list
from feedline.cli.outputs import check_files, name_files, progress_bar, save
from feedline.profiler.errors import FeedlineError, Interrupted, ScriptError
from feedline.profiler.printable import say
from feedline.profiler.samplers.cgroup import effective_cpus

ABOUT = """\
Measure every fix on a small training with an 8 times larger batch.

Trains a convolutional net of 2,500 parameters on MNIST-1D (4,096 samples, generated here) for 12 epochs, with batch 32 and batch 256. Each
arm is compared with its control by Welch's t-test over the seeds; claims that the p values do not support are listed. Five seeds take about
two minutes on two CPUs."""


def main() -> int:
    """Returns the exit code."""
    try:
        return run(parser().parse_args())
    except FeedlineError as error:
        say(error)
        return error.exit_code


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        description=ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument(
        "--seeds",
        type=at_least(1),
        default=5,
        metavar="N",
        help="number of trainings per arm (default: 5)",
    )
    made.add_argument(
        "--arms",
        type=name_list,
        metavar="A,B",
        help="train only these arms (an unknown letter prints the list)",
    )
    made.add_argument(
        "--all", action="store_true", help="train all arms, also those that no gate needs"
    )
    made.add_argument(
        "--processes",
        type=at_least(1),
        metavar="N",
        help="number of trainings at a time (default: one per CPU)",
    )
    made.add_argument("--check", action="store_true", help="exit with code 1 if a gate fails")
    made.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="write the figure, an SVG file"
    )
    made.add_argument("--json", type=Path, metavar="FILE", help="write the table as JSON")
    made.add_argument("-f", "--force", action="store_true", help="overwrite existing files")
    made.add_argument("-q", "--quiet", action="store_true", help="print nothing but errors")
    return made


def run(args: argparse.Namespace) -> int:
    """Train, show, write.

    Raises:
        Interrupted: by Ctrl-C; the trainings that were finished are shown.
    """
    check_files(args)
    table = measure(chosen(args.arms, args.all), args.seeds, args.processes, args.quiet)
    if table is None:
        raise Interrupted("interrupted: no training was finished, so there is no table")
    console = Console(quiet=args.quiet)
    document_text.show(document_of(table), console)
    if table.interrupted:
        raise Interrupted(
            "interrupted: the table above holds the trainings that were finished; nothing was "
            "written"
        )
    if args.output is not None:
        save(args.output, standalone(table))
    if args.json is not None:
        save(args.json, json.dumps(table.plain(), indent=1))
    name_files(console, [path for path in (args.output, args.json) if path is not None])
    return 1 if args.check and any(gate.passed is False for gate in table.gates) else 0


def chosen(asked: list[str] | None, everything: bool) -> list[Arm]:
    """The arms to train, in the order of the table; without Muon if torch lacks it, unless
    requested.

    Raises:
        ScriptError: there is no such arm.
    """
    letters = [letter.upper() for letter in asked or []]
    for letter in letters:
        if letter not in BY_LETTER:
            known = "\n".join(f"  {arm.letter:3} {arm.name}" for arm in ARMS)
            raise ScriptError(f"--arms: unknown arm {letter!r}; the arms are", known)
    if letters:
        return [arm for arm in ARMS if arm.letter in letters]
    can = hasattr(torch.optim, "Muon")  # torch 2.9
    return [arm for arm in ARMS if (everything or arm.core) and (can or arm.optimizer != "muon")]


def measure(arms: list[Arm], seeds: int, processes: int | None, quiet: bool) -> Table | None:
    """Train all arms. After Ctrl-C, the result has the finished trainings; None if there are none.

    Raises:
        MissingDependency: mnist1d is not installed.
    """
    began = time.monotonic()
    made, runs = None, list[Run]()
    try:
        with progress_bar(quiet, "making data") as tell:
            made = data.make()
            race(arms, range(seeds), made, processes or max(1, int(effective_cpus())), tell, runs)
    except KeyboardInterrupt:
        if made is None or not runs:
            return None
    return summarize(
        arms,
        range(seeds),
        runs,
        made,
        time.monotonic() - began,
        interrupted=len(runs) < len(arms) * seeds,
    )


if __name__ == "__main__":
    raise SystemExit(main())
