"""``feedline scale``."""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from feedline.cli.options import add_output, positive, rank_counts, refuse_twice
from feedline.cli.outputs import check_json, console_for, make_folder, name_files, save
from feedline.cli.runs import run_path
from feedline.profiler.deferred import deferred
from feedline.profiler.errors import NotJudged, ScriptError
from feedline.profiler.files import results
from feedline.profiler.printable import printable, say

if TYPE_CHECKING:
    from feedline.analysis.scaling.efficiency import Point
    from feedline.analysis.scaling.more_ranks import ScalingBasis
    from feedline.analysis.scaling.study import Noise
    from feedline.cli.unfinished import Unfinished

_STUDY_FILES = ("scale.html", "scale.json")
_MAX_RATE = 1e18  # samples/s, samples, steps: sums and squares of them stay finite


class ScaleCommand:
    """Measure throughput by number of ranks, and predict it for more ranks.

    After `--`, give the training script and its arguments. feedline runs it under torchrun for each
    number of ranks: keep it short. OMP_NUM_THREADS is 1 unless you set it. Instead of a script, you
    can give existing runs or measured throughputs.

    These runs can overwrite your files. In the training's arguments, feedline replaces {out} with a
    new folder for each run, which it removes afterwards. FEEDLINE_OUT has its path, too.

    Examples:
        feedline scale --ranks 1,2,4 --predict 8 -- train.py --output-dir {out}
        feedline scale runs/one runs/two runs/four-node0 runs/four-node1 --predict 8,16
        feedline scale --throughput 1=67758,2=142704,4=235271 --predict 8
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "runs",
            type=_run_folder,
            nargs="*",
            metavar="RUN",
            help="run folders (or a training script after `--`)",
        )
        measuring = parser.add_argument_group("measuring")
        measuring.add_argument(
            "--ranks",
            type=rank_counts,
            metavar="N,N",
            help="numbers of ranks to run (default: 1, 2, 4, ... up to the number of GPUs, or of "
            "CPUs without a GPU)",
        )
        measuring.add_argument(
            "--throughput",
            type=_throughput,
            metavar="RANKS=SAMPLES/S,...",
            help="throughputs of all ranks together, measured elsewhere",
        )
        predicting = parser.add_argument_group("predicting")
        predicting.add_argument(
            "--predict",
            type=rank_counts,
            default=[],
            metavar="N,N",
            help="numbers of ranks to predict",
        )
        predicting.add_argument(
            "--batch-size",
            type=positive,
            metavar="SAMPLES",
            help="samples per rank and step, if --throughput is given",
        )
        predicting.add_argument(
            "--noise-scale",
            type=_noise_scale,
            metavar="SAMPLES",
            help="critical batch size of `feedline converge advise`, to also compare the time to equal "
            "accuracy by ranks",
        )
        predicting.add_argument(
            "--min-steps",
            type=_steps,
            metavar="STEPS",
            help="updates that even a very large batch needs: gives the times of --noise-scale in "
            "seconds, not ratios",
        )
        add_output(
            parser,
            "folder to create (default with a script: runs/scale-TIME)",
            metavar="FOLDER",
            json="the result",
            force="replace existing runs and files",
        )

    def run(self, args: argparse.Namespace) -> int:
        if (args.throughput is not None) + bool(args.runs) + bool(args.program) != 1:
            raise ScriptError(
                "give one of these: run folders, --throughput, or a training after `--`"
            )
        args.noise = _noise_of(args)
        refuse_twice(args.runs, "run folder")
        if args.program and args.ranks is None:
            args.ranks = _usual_rank_counts()
        folder, new = _folder_for(args)
        if args.program:
            assert folder is not None
            return _record_and_show(args, folder, new)
        return _show_study(from_runs(args.runs) if args.runs else _from_table(args), args, folder)


def _record_and_show(args: argparse.Namespace, folder: Path, new: bool) -> int:
    """Record the training with each number of ranks, and show the result.

    Returns the exit code of a training that failed, or 0.

    Raises:
        Interrupted: Ctrl-C; the same command continues from there.
    """
    from feedline.cli.unfinished import Unfinished, fingerprint

    unfinished = Unfinished(
        folder, fingerprint(args.program), [_run_name(number) for number in args.ranks], args.force
    )
    with unfinished.resumable(new, named=args.output is not None):
        runs, ended = _record_ranks(folder, args.ranks, args.program, unfinished, args.quiet)
        measured = from_runs(runs)
        if ended:
            measured = measured._replace(failed=args.ranks[len(runs)])
        code = _show_study(measured, args, folder)
    return ended or code


def _record_ranks(
    folder: Path,
    ranks: list[int],
    program: list[str],
    unfinished: "Unfinished",
    quiet: bool = False,
) -> tuple[list[Path], int]:
    """Record the training with each number of ranks, the smallest first.

    Its output goes to a file beside each run.

    Args:
        folder: for the runs.
        ranks: numbers of ranks.
        program: script or ``-m module``, and its arguments with {out}.
        unfinished: the runs that need not be recorded again.
        quiet: whether to print nothing.

    Returns:
        The run folders, and the exit code of the first training that failed; those with more ranks
        are not tried then.

    Raises:
        ScriptError: the training failed with the fewest ranks already; with its exit code.
        OutputError: there is no room.
    """
    from feedline.cli import child
    from feedline.cli.unfinished import Remaining

    recorded: list[Path] = []
    left = Remaining(len(ranks))
    if not quiet:
        several = len(ranks) > 1
        runs = f"{len(ranks)} runs" if several else "1 run"
        say(f"{runs} of the whole training{', one after another' if several else ''}")
        if not any(child.OUT in word for word in program):
            say(
                f"it can overwrite files: {child.OUT} in its arguments is a new folder for each run"
            )
    for number in ranks:
        run, log = folder / _run_name(number), folder / f"{_run_name(number)}.log"
        if run.name in unfinished:
            recorded.append(run)
            left.end(made=False)
            continue
        if not quiet:
            say(f"running {number} rank{'s' * (number > 1)}: {' '.join(program)}{left}")
        left.begin()
        code = _run_ranks(number, run, log, program)
        left.end()
        if code:
            failed = child.failure(run) or f"the training ended with exit code {code}"
            message = f"with {number} rank{'s' * (number > 1)}, {failed}; end of {log}"
            say(f"{printable(message)}:\n{child.tail(log)}", lines=True)
            if not recorded:
                error = ScriptError(
                    "the training failed with the smallest number of ranks, so there is nothing "
                    "to compare"
                )
                error.exit_code = code
                raise error
            return recorded, code
        unfinished.add(run.name)
        recorded.append(run)
    return recorded, 0


def _run_name(ranks: int) -> str:
    """Return the name of the run with this number of ranks."""
    return f"ranks{ranks}"


def _run_ranks(number: int, run: Path, log: Path, program: list[str]) -> int:
    """Record one run; return and raise as ``child.run``."""
    from feedline.cli import child

    launcher = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        str(number),
    ]
    with child.out_folder() as out:
        words = [child.fill_placeholders(word, {child.OUT: str(out)}) for word in program]
        recorder = ["-m", "feedline", "run", "-q", "-f", "--strict", "-o", str(run)]
        environment = {"OMP_NUM_THREADS": "1", **os.environ, "FEEDLINE_OUT": str(out)}
        return child.run([*launcher, *recorder, *words], log, environment)


def _usual_rank_counts() -> list[int]:
    """Return 1, 2, 4, ... up to the number of GPUs, or of CPUs without a GPU, but at least 2.

    Raises:
        ScriptError: there is one GPU, which NCCL does not let two ranks share.
    """
    from feedline.profiler.samplers.cgroup import effective_cpus
    from feedline.profiler.samplers.nvml import visible_gpu_count

    gpus = visible_gpu_count()
    if gpus == 1:
        raise ScriptError(
            "this machine has one GPU, which NCCL does not let two ranks share: give --ranks 1,2 if "
            "the training uses gloo"
        )
    limit = gpus or int(effective_cpus())
    return [1, 2, *(2**power for power in range(2, 20) if 2**power <= limit)]


def _run_folder(text: str) -> Path:
    """Parse an existing folder; the script of a training is not one."""
    run = run_path(text)
    if not run.is_dir():
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a run folder; a training goes after `--`: feedline scale -- {text} "
            f"..."
        )
    return run


def _throughput(text: str) -> dict[int, float]:
    """Parse ``1=67758,2=142704``: ranks -> samples/s."""
    from feedline.profiler.files.checking import MOST_RANKS

    rates: dict[int, float] = {}
    for part in text.split(","):
        ranks, _, text_of_rate = part.partition("=")
        try:
            number, rate = int(ranks), float(text_of_rate)
        except ValueError:
            number = rate = 0
        if not 1 <= number <= MOST_RANKS or not 0 < rate <= _MAX_RATE:
            raise argparse.ArgumentTypeError(
                f"invalid entry {part[:40]!r}: expected RANKS=SAMPLES_PER_S, for example 2=142704"
            )
        if number in rates:
            raise argparse.ArgumentTypeError(
                f"the throughput of {number} ranks is given twice: give each number of ranks once"
            )
        rates[number] = rate
    return rates


def _noise_scale(text: str) -> float:
    """Parse a gradient noise scale, in samples."""
    try:
        return _reasonable(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected a gradient noise scale in samples, such as 4096, got {text[:40]!r}"
        ) from None


def _steps(text: str) -> float:
    """Parse a number of steps."""
    try:
        return _reasonable(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected a number of steps, such as 3000, got {text[:40]!r}"
        ) from None


def _reasonable(text: str) -> float:
    """Parse a number above zero, with squares that stay finite. Raises ValueError."""
    if not 0 < (value := float(text)) < _MAX_RATE:
        raise ValueError(text)
    return value


def _noise_of(args: argparse.Namespace) -> "Noise | None":
    """Return the values of ``--noise-scale`` and ``--min-steps``.

    Raises ScriptError for the steps alone.
    """
    from feedline.analysis.scaling.study import Noise

    if args.noise_scale is None:
        if args.min_steps is not None:
            raise ScriptError("--min-steps needs --noise-scale")
        return None
    return Noise(args.noise_scale, args.min_steps)


def _folder_for(args: argparse.Namespace) -> tuple[Path | None, bool]:
    """Return the output folder (None: nothing is written), and whether it is new.

    Raises OutputError.
    """
    if args.output is None and not args.program:
        check_json(args)
        return None, False
    return make_folder(args, "scale", _STUDY_FILES)


class _StudyInput(NamedTuple):
    """The arguments of a study."""

    points: "list[Point]"
    basis: "ScalingBasis | None" = None
    late: str = ""
    refused: str = ""
    failed: int | None = None


def _from_table(args: argparse.Namespace) -> _StudyInput:
    """Return throughputs given by the user, without further data."""
    from feedline.analysis.scaling.efficiency import Point

    return _StudyInput(
        [Point(ranks, rate, batch=args.batch_size) for ranks, rate in args.throughput.items()]
    )


def from_runs(paths: list[Path]) -> _StudyInput:
    """Return what recorded runs tell of scaling.

    These are throughputs and step times, the late rank of the largest, and whether their ranks
    trained together.

    Raises:
        RunNotFound, RunDamaged, SchemaTooNew: a folder is none, or cannot be read.
    """
    from feedline.analysis.explain.late_launch import late_of
    from feedline.analysis.scaling import launch_points
    from feedline.profiler.store.trainings import open_run, require_one_training

    launches = launch_points.launches([require_one_training(open_run(path)) for path in paths])
    points = launch_points.points_of(launches)
    if refused := launch_points.why_incomparable(launches, points):
        return _StudyInput(points, refused=refused)
    largest = points[-1]
    late = late_of(launches[-1], largest.ranks, largest.step_s)
    return _StudyInput(points, launch_points.basis_of(launches), late)


def _show_study(measured: _StudyInput, args: argparse.Namespace, folder: Path | None) -> int:
    """Print the result, and write it where requested; return the exit code.

    That is NotJudged's if there is no efficiency.

    Raises:
        OutputError: a file cannot be written.
    """
    from feedline.analysis.report import document_text
    from feedline.analysis.report.json_report import plain
    from feedline.analysis.scaling.study import study
    from feedline.cli.scale.text import document_of, render

    result = study(
        measured.points,
        args.predict,
        measured.basis,
        args.noise,
        measured.late,
        measured.refused,
        measured.failed,
    )
    console = console_for(args)
    document_text.show(document_of(result), console)
    as_json = json.dumps(plain(result), indent=1)
    texts = list(zip(_STUDY_FILES, (render(result), as_json), strict=True)) if folder else []
    with deferred():
        written = [results.save(folder, name, text) for name, text in texts if folder]
        if args.json is not None:
            save(args.json, as_json)
            written.append(args.json)
    name_files(console, written)
    return NotJudged.exit_code if result.refused else 0
