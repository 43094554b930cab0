"""``feedline scale``."""

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from feedline.cli.arguments import positive, refuse_twice
from feedline.profiler.deferred import deferred
from feedline.profiler.errors import ScriptError
from feedline.profiler.files import output, results
from feedline.profiler.ranks import MOST_RANKS

if TYPE_CHECKING:
    from feedline.analysis.scaling.efficiency import Point
    from feedline.analysis.scaling.predict import Basis
    from feedline.analysis.scaling.study import Study
    from feedline.analysis.scaling.time_to_accuracy import Noise

FILES = ("scale.html", "scale.json")
MOST_RATE = 1e18  # samples/s, samples, steps: sums and squares of them stay finite


class Scale:
    """What do more ranks give? Measures 1, 2, 4, ... on this machine, or reads runs, and predicts others.

    feedline scale --ranks 1,2,4 --predict 8 -- train.py --epochs 1
    feedline scale runs/one runs/two runs/four-node0 runs/four-node1 --predict 8,16
    feedline scale --table 1=67758,2=142704,4=235271,8=381000

    Everything after `--` is the training: it runs under torchrun and `feedline run`, once for each number of ranks, so give it arguments
    that make it short. Without OMP_NUM_THREADS, each rank gets one thread, as torchrun does from two ranks on.
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--ranks", type=counts, metavar="N,N", help="numbers of ranks to run (default: 1, 2, 4, ... to a GPU or CPU each)"
        )
        parser.add_argument("--predict", type=counts, default=[], metavar="N,N", help="numbers of ranks to predict")
        parser.add_argument("--table", type=table, metavar="N=X,N=X", help="samples/s by number of ranks, measured elsewhere")
        parser.add_argument("--batch", type=positive, metavar="N", help="samples per rank and step, for --table")
        parser.add_argument(
            "--noise-scale",
            type=noise,
            metavar="B[:STEPS]",
            help="gradient noise scale in samples, and the steps needed as the batch grows without bound: time to accuracy",
        )
        parser.add_argument(
            "-o", "--output", type=Path, metavar="FOLDER", help="folder to make (default: runs/scale-TIME, if a training is run)"
        )
        parser.add_argument("-f", "--force", action="store_true", help="overwrite what is there")
        parser.add_argument("--json", type=Path, metavar="FILE", help="also write the result as JSON")
        parser.add_argument("runs", type=run_folder, nargs="*", metavar="RUN", help="run folders; a training goes after `--`")

    def run(self, args: argparse.Namespace) -> int:
        if (args.table is not None) + bool(args.runs) + bool(args.program) != 1:
            raise ScriptError("name run folders, or a training after `--`, or give --table: one of the three")
        refuse_twice(args.runs, "run folder")
        folder, new = folder_for(args, bool(args.program))
        if args.program:
            assert folder is not None
            return record(args, folder, new)
        show(*(from_runs(args.runs) if args.runs else from_table(args)), args, folder)
        return 0


def record(args: argparse.Namespace, folder: Path, new: bool) -> int:
    """Run the training with each number of ranks, and show the study. Returns the exit code of a training that failed.

    Raises:
        Interrupted: Ctrl-C; the same command goes on from there.
    """
    from feedline.cli import scale_runs
    from feedline.cli.unfinished import Unfinished, fingerprint

    ranks = args.ranks or scale_runs.up_to(scale_runs.devices())
    unfinished = Unfinished(folder, fingerprint(args.program), [scale_runs.name_of(number) for number in ranks], args.force)
    with unfinished.resumable(new, named=args.output is not None):
        runs, ended = scale_runs.record(folder, ranks, args.program, unfinished)
        show(*from_runs(runs), args, folder)
    return ended


def counts(text: str) -> list[int]:
    """``1,2,4``, ascending and each once."""
    try:
        found = sorted({int(part) for part in text.split(",") if part.strip()})
    except ValueError:
        found = []
    if not found or found[0] < 1 or found[-1] > MOST_RANKS:
        raise argparse.ArgumentTypeError(f"expected numbers of ranks from 1 to {MOST_RANKS:,}, such as 1,2,4, got {text[:40]!r}")
    return found


def run_folder(text: str) -> Path:
    """A folder that is there; the script of a training is none."""
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is not a run folder; a training goes after `--`: feedline scale -- {text} ...")
    return Path(text)


def table(text: str) -> dict[int, float]:
    """``1=67758,2=142704``: ranks -> samples/s."""
    found: dict[int, float] = {}
    for part in text.split(","):
        ranks, _, rate = part.partition("=")
        try:
            number, value = int(ranks), float(rate)
        except ValueError:
            number = value = 0
        if not 1 <= number <= MOST_RANKS or not 0 < value <= MOST_RATE:
            raise argparse.ArgumentTypeError(f"invalid entry {part[:40]!r}: expected RANKS=SAMPLES_PER_S, for example 2=142704")
        if number in found:
            raise argparse.ArgumentTypeError(f"{number} ranks are given twice")
        found[number] = value
    return found


def noise(text: str) -> "Noise":
    """``4096`` or ``4096:3000``."""
    from feedline.analysis.scaling.time_to_accuracy import Noise

    scale, _, steps = text.partition(":")
    try:
        found = Noise(float(scale), float(steps) if steps else None)
    except ValueError:
        found = Noise(0.0)
    if not 0 < found.critical_batch < MOST_RATE or found.fewest_steps is not None and not 0 < found.fewest_steps < MOST_RATE:
        raise argparse.ArgumentTypeError(f"expected a noise scale in samples, or with steps, such as 4096:3000, got {text[:40]!r}")
    return found


def folder_for(args: argparse.Namespace, recording: bool) -> tuple[Path | None, bool]:
    """Where to write, None: nowhere; and whether that is a new folder.

    Raises:
        OutputError: there is something already, or it cannot be made.
    """
    from feedline.profiler import ranks

    folder: Path | None = args.output or (Path("runs") / f"scale-{ranks.started_at()}" if recording else None)
    output.refuse_taken(args.json, args.force)
    return folder, folder is not None and results.prepare(folder, FILES, args.force)


def from_table(args: argparse.Namespace) -> "tuple[list[Point], Basis | None, str]":
    """Throughputs that the user gave, of which nothing else is known."""
    from feedline.analysis.scaling.efficiency import Point

    return [Point(ranks, rate, batch=args.batch) for ranks, rate in args.table.items()], None, ""


def from_runs(paths: list[Path]) -> "tuple[list[Point], Basis, str]":
    """Throughputs and anatomy of recorded runs, and the late rank of the largest.

    Raises:
        RunNotFound, RunDamaged, SchemaTooNew: a folder is none, or cannot be read.
    """
    from feedline.analysis.scaling import basis, late, measured
    from feedline.profiler.store.parts import only
    from feedline.profiler.store.read import Run

    launches = measured.launches([only(Run.open(path)) for path in paths])
    points = measured.points_of(launches)
    return points, basis.basis_of(launches), late.late_of(launches[-1], points[-1])


def show(points: "list[Point]", basis: "Basis | None", late: str, args: argparse.Namespace, folder: Path | None) -> None:
    """Print the study, and write it where it was asked for.

    Raises:
        OutputError: a file cannot be written.
    """
    from feedline.analysis.reports.console import Console
    from feedline.analysis.scaling.study import study
    from feedline.cli import scale_page, scale_text

    found = study(points, args.predict, basis, args.noise_scale, late)
    console = Console()
    scale_text.show(found, console)
    texts = list(zip(FILES, (scale_page.render(found), plain(found)), strict=True)) if folder else []
    with deferred():
        written = [results.save(folder, name, text) for name, text in texts if folder]
        if args.json is not None:
            output.save(args.json, plain(found))
            written.append(args.json)
    for path in written:
        console.print(f"  {os.path.relpath(path)}", soft_wrap=True)


def plain(found: "Study") -> str:
    """As JSON."""
    return json.dumps(found.plain(), indent=1)
