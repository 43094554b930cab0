"""``feedline converge advise``."""

import argparse
import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from feedline.profiler.errors import OutputError, ScriptError

if TYPE_CHECKING:
    from feedline.analysis.convergence.advise import Advised
    from feedline.analysis.convergence.recorded import Recorded
    from feedline.analysis.convergence.target import StepTime
    from feedline.cli.converge.advise_text import ToTarget


class Advise:
    """What a larger batch cost a training, what it is worth, and what to try first.

    feedline converge advise runs/batch-256
    feedline converge advise runs/batch-32 runs/batch-256
    feedline converge advise runs/batch-32 --target "train loss=0.3" --workers 1,2,4,8

    With a run of a smaller batch beside it, a loss is told to be one of optimisation, of stale statistics, of generalisation, or an
    instability. Runs of one batch count as seeds. Time to a target needs recorded runs with two numbers of workers, to predict others.
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        from feedline.cli.scale import counts

        parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="run folders; the smallest batch is the reference")
        parser.add_argument("--target", type=target, metavar="NAME=VALUE", help="when a curve comes to a value, such as 'train loss=0.3'")
        parser.add_argument("--workers", type=counts, metavar="N,N", help="numbers of workers to tell the time to the target for")
        parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything as JSON")
        parser.add_argument("-f", "--force", action="store_true", help="overwrite the file")
        parser.add_argument("-q", "--quiet", action="store_true", help="print nothing")

    def run(self, args: argparse.Namespace) -> int:
        if args.json is not None and args.json.exists() and not args.force:
            raise OutputError(f"{args.json} exists already: name another file, or overwrite it with -f")
        if args.workers and args.target is None:
            raise ScriptError("--workers tells the time to a target: name one with --target NAME=VALUE")
        from rich.console import Console

        from feedline.analysis.convergence.advise import advise
        from feedline.analysis.convergence.read import read
        from feedline.cli.converge import advise_text

        runs = [read(path) for path in args.runs]
        found = advise(runs)
        to = time_to(runs, found, args.target, step_times(args.runs, runs, args.workers or [])) if args.target else None
        if not args.quiet:
            advise_text.show(runs, found, to, Console(highlight=False))
        if args.json is not None:
            write(args.json, found, to)
        return 0


def target(text: str) -> tuple[str, float]:
    """``train loss=0.3``.

    Raises:
        ArgumentTypeError: it has no name, or no finite number.
    """
    name, _, value = text.rpartition("=")
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not name.strip() or not math.isfinite(number):
        raise argparse.ArgumentTypeError(f"{text!r} is no curve with a value, like 'train loss=0.3'")
    return name.strip(), number


def step_times(paths: "list[Path]", runs: "list[Recorded]", workers: list[int]) -> "list[StepTime]":
    """Seconds of an update with each number of workers: of the runs themselves, or by the scaling laws that they allow.

    Raises:
        RunNotFound, RunDamaged, SchemaTooNew: a folder is none, or cannot be read.
    """
    from feedline.analysis.convergence.target import StepTime

    measured = {run.ranks: run for run in runs}
    wanted = workers or sorted(measured)
    made = [StepTime(run.ranks, run.step_s, run.step_s, run.step_s, "measured") for run in measured.values() if run.ranks in wanted]
    unknown = [number for number in wanted if number not in measured]
    if unknown:
        made += predicted_times(paths, runs, unknown)
    return sorted(made, key=lambda one: wanted.index(one.workers))


def predicted_times(paths: "list[Path]", runs: "list[Recorded]", workers: list[int]) -> "list[StepTime]":
    """By the runs whose workers have as many samples of an update each as the first run's; every worker to come has them too."""
    from feedline.analysis.convergence.target import StepTime
    from feedline.analysis.scaling.efficiency import SAME_BATCH, STEPS
    from feedline.analysis.scaling.study import study
    from feedline.cli.scale import from_runs

    part = _part(runs[0])
    if part is None:
        return [StepTime(number, None, None, None, "nobody knows how many samples an update has") for number in workers]
    parts = [(path, _part(run)) for path, run in zip(paths, runs, strict=True)]
    points, basis = from_runs([path for path, one in parts if one is not None and abs(one / part - 1) <= SAME_BATCH])
    found = study(points, workers, basis)
    made = []
    for one in found.predictions:
        if not one.samples_per_s or not one.low or not one.high:
            made.append(StepTime(one.ranks, None, None, None, one.why))
            continue
        whole = one.ranks * (1 if found.unit == STEPS else part)
        made.append(StepTime(one.ranks, whole / one.samples_per_s, whole / one.high, whole / one.low, one.model))
    return made


def _part(run: "Recorded") -> float | None:
    return run.batch / run.ranks if run.batch else None


def time_to(runs: "list[Recorded]", found: "Advised", wanted: tuple[str, float], steps: "list[StepTime]") -> "ToTarget":
    """From the run with the smallest batch that comes to the target, each worker with the batch that it has there.

    Raises:
        ScriptError: no run has such a curve, or knows its batch.
    """
    from feedline.analysis.convergence import curves
    from feedline.analysis.convergence.target import steps_to_target, time_to_target
    from feedline.cli.converge.advise_text import ToTarget

    name, value = wanted
    having = sorted((run for run in runs if name in run.curves and run.batch), key=lambda run: run.batch or 0.0)
    if not having:
        there = ", ".join(sorted({curve for run in runs for curve in run.curves})) or "none"
        raise ScriptError(f"no run has a curve {name!r} and a known batch; there are: {there}")
    tried = [(run, steps_to_target(run.curves[name], value, rising=curves.rises(name))) for run in having]
    run, reached = next((pair for pair in tried if pair[1].updates is not None), tried[0])
    assert run.batch is not None
    rows = [time_to_target(reached, run.batch, run.batch / run.ranks * one.workers, found.noise, one) for one in steps]
    return ToTarget(name, value, run.name, rows)


def write(path: Path, found: "Advised", to: "ToTarget | None") -> None:
    """As JSON; what is not finite is null.

    Raises:
        OutputError: the file cannot be written.
    """
    text = json.dumps(_plain({**asdict(found), "target": asdict(to) if to else None}), indent=1, allow_nan=False)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutputError(f"{path} cannot be written ({error.strerror}): name another place") from error


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
