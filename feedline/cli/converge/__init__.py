"""``feedline converge``."""

import argparse
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

from feedline.cli.options import add_output, rank_counts, refuse_twice
from feedline.cli.outputs import check_files, console_for, save
from feedline.cli.parser import Command, Parser, overview
from feedline.cli.runs import run_path
from feedline.profiler.errors import NotJudged, ScriptError

if TYPE_CHECKING:
    from feedline.analysis.convergence.advisor import Advised
    from feedline.analysis.convergence.target import Reached, StepTime
    from feedline.analysis.convergence.training_record import TrainingRecord
    from feedline.cli.converge.text import TimesToTarget


class _AdviseCommand:
    """Find out why a larger batch lowered the accuracy, and what to try first.

    Compares the runs with the one that has the smallest batch. Says whether accuracy was lost to too
    few updates, stale BatchNorm statistics, worse generalization, instability or a mistake in the
    setup. Runs of equal batch size (samples per update, of all ranks) are treated as repetitions
    with different seeds. Losses are recorded automatically, other metrics by
    feedline.metric(NAME, VALUE).

    With --target, also prints the time to reach this value, by number of ranks. To predict numbers of
    ranks that were not run, give runs with at least two different numbers of ranks.

    Examples:
        feedline converge advise runs/batch-32 runs/batch-256
        feedline converge advise runs/one-rank runs/two-ranks --target "train loss=0.3" --ranks 1,2,4,8
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "runs",
            type=run_path,
            nargs="+",
            metavar="RUN",
            help="run folders (the one with the smallest batch is the reference)",
        )
        reaching = parser.add_argument_group("time to a target")
        reaching.add_argument(
            "--target",
            type=_parse_target,
            metavar="CURVE=VALUE",
            help="report the time until a recorded curve reaches a value, such as 'train loss=0.3'",
        )
        reaching.add_argument(
            "--ranks",
            type=rank_counts,
            metavar="N,N",
            help="numbers of ranks to report the time for (default: those of the runs)",
        )
        add_output(parser, json="the advice")

    def run(self, args: argparse.Namespace) -> int:
        check_files(args)
        refuse_twice(args.runs, "run folder")
        if args.ranks and args.target is None:
            raise ScriptError("--ranks needs --target CURVE=VALUE")
        from feedline.analysis.convergence.advisor import advise
        from feedline.analysis.report import document_text
        from feedline.cli.converge.text import document_of

        runs = [_read(path) for path in args.runs]
        advised = advise(runs)
        times = None
        if args.target:
            run, reached = _choose_run(runs, args.target)
            times = _times_to_target(
                run,
                reached,
                advised,
                args.target,
                _step_times(args.runs, runs, run, args.ranks or []),
            )
        document_text.show(document_of(runs, advised, times), console_for(args))
        if args.json is not None:
            _write_advice(args.json, advised, times)
        return 0


CONVERGE_COMMANDS: dict[str, type[Command]] = {"advise": _AdviseCommand}


class ConvergeCommand:
    """Explain and repair accuracy that large batches lose."""

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        assert isinstance(parser, Parser)
        parser.description = f"{parser.description}\n\n{overview({'commands:': CONVERGE_COMMANDS})}"
        parser.add_commands(CONVERGE_COMMANDS)

    def run(self, args: argparse.Namespace) -> int:
        raise AssertionError("one of its commands is run")


def _read(path: Path) -> "TrainingRecord":
    """Read a run that came to its end, was interrupted, or goes on.

    Raises:
        NotJudged: it failed or was killed in its first epoch, and not because its loss exploded.
        RunNotFound, RunDamaged, SchemaTooNew: as ``open_run``, and for a folder that holds several
            trainings.
    """
    from feedline.analysis.convergence import checks
    from feedline.analysis.convergence.read_training import of_run
    from feedline.analysis.explain.run_facts import failure_of
    from feedline.profiler.store.trainings import open_run, require_one_training

    run = require_one_training(open_run(path))
    recorded = of_run(run)
    failed = next(filter(None, (failure_of(rank.manifest) for rank in run.ranks.values())), "")
    diverged = any(found.rule_id in checks.DIVERGED for found in checks.run_checks(recorded))
    whole = recorded.samples_per_epoch and recorded.samples >= recorded.samples_per_epoch
    if failed and not diverged and not whole:
        raise NotJudged(f"no advice can be given from {path}: the training {failed}")
    return recorded


def _parse_target(text: str) -> tuple[str, float]:
    """Parse ``train loss=0.3``.

    Raises:
        ArgumentTypeError: it has no name, or no finite number.
    """
    name, _, value = text.rpartition("=")
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not name.strip() or not math.isfinite(number):
        raise argparse.ArgumentTypeError(
            f"expected CURVE=VALUE, such as 'train loss=0.3', got {text[:40]!r}"
        )
    return name.strip(), number


def _choose_run(
    runs: "list[TrainingRecord]", wanted: tuple[str, float]
) -> "tuple[TrainingRecord, Reached]":
    """Return the run to reach the target with, and when it did.

    That is the run with the smallest batch that reaches it, else the one with the smallest batch.

    Raises:
        ScriptError: no run has such a curve, or knows its batch.
    """
    from feedline.analysis.convergence.target import steps_to_target

    name, value = wanted
    candidates = sorted(
        (run for run in runs if name in run.curves and run.batch), key=lambda run: run.batch or 0.0
    )
    if not candidates:
        names = ", ".join(sorted({curve for run in runs for curve in run.curves})) or "none"
        raise ScriptError(
            f"no run with a known batch size has a curve {name!r}; the curves are {names}"
        )
    reached = [
        (run, steps_to_target(run.curves[name], value, rising=_rises(name, run, value)))
        for run in candidates
    ]
    return next((pair for pair in reached if pair[1].updates is not None), reached[0])


def _rises(name: str, run: "TrainingRecord", target: float) -> bool:
    """Return whether a curve comes to its target from below.

    The name says so, or else the first value.
    """
    from feedline.analysis.convergence.curves import is_lower_better

    lower = is_lower_better(name)
    values = run.curves[name].values
    return bool(len(values) and values[0] < target) if lower is None else not lower


def _step_times(
    paths: "list[Path]", runs: "list[TrainingRecord]", like: "TrainingRecord", workers: list[int]
) -> "list[StepTime]":
    """Return seconds per update for each number of workers, at the batch per worker of ``like``.

    They are measured in the runs, or predicted by the scaling laws fitted to them.

    Raises:
        RunNotFound, RunDamaged, SchemaTooNew: a folder is none, or cannot be read.
    """
    from feedline.analysis.convergence.target import StepTime

    same_part = {path: run for path, run in zip(paths, runs, strict=True) if _same_part(run, like)}
    measured = {run.ranks: run for run in same_part.values()}
    wanted = workers or sorted(measured)
    times = [
        StepTime(run.ranks, run.step_s, run.step_s, run.step_s, "measured")
        for run in measured.values()
        if run.ranks in wanted
    ]
    unknown = [number for number in wanted if number not in measured]
    if unknown:
        times += _predicted_times(list(same_part), _part_of(like), unknown)
    return sorted(times, key=lambda time: wanted.index(time.workers))


def _predicted_times(paths: "list[Path]", part: float, workers: list[int]) -> "list[StepTime]":
    """Predict step times by the scaling laws fitted to the runs.

    Args:
        paths: run folders.
        part: samples of one worker in an update.
        workers: numbers of workers.
    """
    from feedline.analysis.convergence.target import StepTime
    from feedline.analysis.scaling.efficiency import Unit
    from feedline.analysis.scaling.study import study
    from feedline.cli.scale import from_runs

    measured = from_runs(paths)
    scaling = study(measured.points, workers, measured.basis, refused=measured.refused)
    times = []
    for rate in scaling.predictions:
        if not rate.samples_per_s or not rate.low or not rate.high:
            times.append(StepTime(rate.ranks, None, None, None, rate.why))
            continue
        samples = rate.ranks * (1 if scaling.unit == Unit.STEPS else part)
        times.append(
            StepTime(
                rate.ranks,
                samples / rate.samples_per_s,
                samples / rate.high,
                samples / rate.low,
                rate.model,
            )
        )
    return times


def _part_of(run: "TrainingRecord") -> float:
    """Return the samples of one worker in an update; 0 if unknown."""
    return (run.batch or 0.0) / run.ranks


def _same_part(run: "TrainingRecord", like: "TrainingRecord") -> bool:
    """Return whether a worker has equally many samples in an update in both runs."""
    from feedline.analysis.scaling.efficiency import SAME_BATCH

    return abs(_part_of(run) / _part_of(like) - 1) <= SAME_BATCH


def _times_to_target(
    run: "TrainingRecord",
    reached: "Reached",
    advised: "Advised",
    target: tuple[str, float],
    steps: "list[StepTime]",
) -> "TimesToTarget":
    """Return the time to the target for each number of workers, with the batch that it has there.

    Args:
        run: the run of ``_choose_run``.
        reached: when it reaches the target.
        advised: the advice, with the noise scale.
        target: the target's curve and value.
        steps: seconds per update by number of workers.
    """
    from feedline.analysis.convergence.target import time_to_target
    from feedline.cli.converge.text import TimesToTarget

    rows = [
        time_to_target(reached, run.batch or 0.0, _part_of(run) * step.workers, advised.noise, step)
        for step in steps
    ]
    return TimesToTarget(*target, run.name, rows)


def _write_advice(path: Path, advised: "Advised", times: "TimesToTarget | None") -> None:
    """Write the result as JSON; values that are not finite become null.

    Raises:
        OutputError: the file cannot be written.
    """
    from feedline.analysis.report.json_report import plain

    save(path, json.dumps(plain({**vars(advised), "target": times}), indent=1, allow_nan=False))
