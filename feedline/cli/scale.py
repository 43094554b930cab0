"""``feedline scale``."""

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from feedline.profiler.errors import ScriptError
from feedline.profiler.files import output, results

if TYPE_CHECKING:
    from feedline.analysis.scaling.efficiency import Point
    from feedline.analysis.scaling.predict import Basis
    from feedline.analysis.scaling.study import Study
    from feedline.analysis.scaling.time_to_accuracy import Noise

FILES = ("scale.html", "scale.json")


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
        parser.add_argument("--table", type=table, metavar="N=X,N=X", help="samples/s by ranks, measured by others")
        parser.add_argument("--batch", type=float, metavar="N", help="samples of one rank in one step, for --table")
        parser.add_argument(
            "--noise-scale",
            type=noise,
            metavar="B[:STEPS]",
            help="gradient noise scale in samples, and steps at endless batch: time to accuracy",
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
        folder = folder_for(args, bool(args.program))
        runs, ended = args.runs, 0
        if args.program:
            from feedline.cli.scale_runs import record

            assert folder is not None
            runs, ended = record(folder, args.ranks, args.program, args.force)
        points, basis = from_runs(runs) if runs else from_table(args)
        show(points, basis, args, folder)
        return ended


def counts(text: str) -> list[int]:
    """``1,2,4``, ascending and each once."""
    try:
        found = sorted({int(part) for part in text.split(",") if part.strip()})
    except ValueError:
        found = []
    if not found or found[0] < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of numbers of ranks like 1,2,4")
    return found


def run_folder(text: str) -> Path:
    """A folder that is there; the script of a training is none."""
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is no run folder; a training goes after `--`: feedline scale -- {text} ...")
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
        if number < 1 or not 0 < value < float("inf"):
            raise argparse.ArgumentTypeError(f"{part!r} is no number of ranks with its samples/s, like 2=142704")
        if number in found:
            raise argparse.ArgumentTypeError(f"{number} ranks are there twice")
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
    if not found.critical_batch > 0 or found.fewest_steps is not None and not found.fewest_steps > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no noise scale in samples, or one with steps like 4096:3000")
    return found


def folder_for(args: argparse.Namespace, recording: bool) -> Path | None:
    """Where to write; None: nowhere.

    Raises:
        OutputError: there is something already, or it cannot be made.
    """
    from feedline.profiler import ranks

    folder: Path | None = args.output or (Path("runs") / f"scale-{ranks.started_at()}" if recording else None)
    output.refuse_taken(args.json, args.force)
    if folder is not None:
        results.prepare(folder, FILES, args.force)
    return folder


def from_table(args: argparse.Namespace) -> "tuple[list[Point], Basis | None]":
    """Throughputs that the user gave."""
    from feedline.analysis.scaling.efficiency import Point

    return [Point(ranks, rate, batch=args.batch) for ranks, rate in args.table.items()], None


def from_runs(paths: list[Path]) -> "tuple[list[Point], Basis]":
    """Throughputs and anatomy of recorded runs.

    Raises:
        RunNotFound, RunDamaged, SchemaTooNew: a folder is none, or cannot be read.
    """
    from feedline.analysis.scaling import basis, measured
    from feedline.profiler.store.parts import only
    from feedline.profiler.store.read import Run

    launches = measured.launches([only(Run.open(path)) for path in paths])
    return measured.points_of(launches), basis.basis_of(launches)


def show(points: "list[Point]", basis: "Basis | None", args: argparse.Namespace, folder: Path | None) -> None:
    """Print the study, and write it where it was asked for.

    Raises:
        OutputError: a file cannot be written.
    """
    from feedline.analysis.reports.console import Console
    from feedline.analysis.scaling.study import study
    from feedline.cli import scale_page, scale_text

    found = study(points, args.predict, basis, args.noise_scale)
    console = Console()
    scale_text.show(found, console)
    texts = zip(FILES, (scale_page.render(found), plain(found)), strict=True) if folder else ()
    written = [results.save(folder, name, text) for name, text in texts if folder]
    if args.json is not None:
        output.save(args.json, plain(found))
        written.append(args.json)
    for path in written:
        console.print(f"  {os.path.relpath(path)}", soft_wrap=True)


def plain(found: "Study") -> str:
    """As JSON."""
    return json.dumps(found.plain(), indent=1)
