"""A fix for large batches, tried by seed: ``feedline verify --fix NAME=VALUE``."""

import argparse
import dataclasses
import math
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from feedline.analysis.convergence.curves import is_lower_better
from feedline.analysis.convergence.read_training import read
from feedline.analysis.convergence.training_record import TrainingRecord
from feedline.analysis.convergence.trial import Branch, FixTrial, decide, final_value, usual_metric
from feedline.analysis.explain.speed_trial import CODES, LEDGER
from feedline.analysis.report import document_text
from feedline.cli import child
from feedline.cli.outputs import console_for, name_files
from feedline.cli.unfinished import Remaining, Unfinished, fingerprint, is_unfinished
from feedline.cli.verify.text import document_of_seeds, write_trial
from feedline.convergence.apply import parse_fixes
from feedline.profiler import masks
from feedline.profiler.deferred import deferred
from feedline.profiler.errors import FeedlineError, FixError, ScriptError
from feedline.profiler.files import results
from feedline.profiler.printable import say


@dataclass(frozen=True)
class _SeedPlan:
    """The branches of a trial.

    Attributes:
        arms: arm -> its ``--fix`` text; "" for none.
        program: script or ``-m module``, and its arguments with {out}, {arm}, {seed} and
            {checkpoint}.
        metric: None: what the branches have.
        lower_is_better: of the metric; None: as its name says.
    """

    arms: dict[str, str]
    program: list[str]
    checkpoint: Path | None
    seeds: int
    ranks: int
    folder: Path
    force: bool
    metric: str | None
    margin: float
    lower_is_better: bool | None
    quiet: bool = False


def verify_by_seed(args: argparse.Namespace, program: list[str]) -> int:
    """Train every branch, decide, and show the result.

    Raises:
        FixError: the fix cannot be applied or compared. ScriptError: the training fails.
        Interrupted: Ctrl-C; the same command continues from there.
    """
    arms = _arms_of(args.fix, args.control, args.ranks)
    _check(program, args.checkpoint)
    _check_direction(args.metric, args.better)

    console = console_for(args)
    margin = args.margin or 0.0
    plan = _SeedPlan(
        arms,
        program,
        args.checkpoint,
        args.seeds,
        args.ranks,
        args.output,
        args.force,
        args.metric,
        margin,
        None if args.better is None else args.better == "lower",
        args.quiet,
    )
    unfinished, new = _prepare(plan)
    with unfinished.resumable(new, named=True):
        trial = _record(plan, unfinished)
        document_text.show(document_of_seeds(trial), console)
        with deferred():
            write_trial(dataclasses.asdict(trial), args.output, args.json, program)
    name_files(console, [args.output / LEDGER])
    return CODES[trial.verdict]


def _arms_of(fix: str, control: str | None, ranks: int) -> dict[str, str]:
    """Return arm -> its ``--fix`` text.

    The control that a fix brings has the other fixes beside it, or theirs would count as its own.

    Raises:
        FixError: a text that is none, or a fix that cannot act on so many ranks.
    """
    requests = parse_fixes(fix, ranks)
    if control is None:
        controls = [
            request.fix.control.format(lr=getattr(request.setting, "lr", ""))
            for request in requests
            if request.fix.control
        ]
        control = controls[0] if len(controls) == 1 else ""
        if control:
            named = {request.fix.name for request in parse_fixes(control)}
            others = [
                request.text
                for request in requests
                if not request.fix.control and request.fix.name not in named
            ]
            control = ",".join([control, *others])
    if control in ("none", fix):
        control = ""
    if control:
        try:
            parse_fixes(control, ranks)
        except FixError as error:
            raise FixError(
                f"control {control}: {error}; choose another with --control, or --control none"
            ) from error
    return {"baseline": "", "fix": fix, **({"control": control} if control else {})}


def _check(program: list[str], checkpoint: Path | None) -> None:
    """Check that there is a training to run, and that its checkpoint can be used.

    Raises:
        FixError: there is not, or it cannot.
    """
    if not program:
        raise FixError(
            "no training given: add it after `--`, as in feedline verify --fix ... -- train.py ARGS"
        )
    if checkpoint is not None and not checkpoint.is_file():
        raise FixError(
            f"checkpoint {checkpoint} does not exist: give the path of the file that the training "
            f"loads"
        )
    if checkpoint is not None and not any("{checkpoint}" in word for word in program):
        raise FixError(
            "the training is not told which checkpoint to load: add {checkpoint} to its "
            "arguments, as in --resume {checkpoint}"
        )


def _check_direction(metric: str | None, better: str | None) -> None:
    """Check that it is known whether a higher or a lower metric is better.

    Raises:
        ScriptError: it is not.
    """
    if metric is None and better is not None:
        raise ScriptError("--better needs --metric NAME")
    if metric is not None and better is None and is_lower_better(metric) is None:
        raise ScriptError(
            f"the name {metric!r} does not say whether higher or lower is better: add --better "
            f"higher or --better lower"
        )


def _prepare(plan: _SeedPlan) -> tuple[Unfinished, bool]:
    """Prepare the folder; also return whether it is new.

    Raises:
        OutputError: there are older branches, or it cannot be created.
    """
    new = results.prepare(plan.folder, [], plan.force)
    request = [
        *fingerprint([*plan.program, str(plan.checkpoint or "")]),
        str(plan.ranks),
        *(f"{arm}: {fix}" for arm, fix in plan.arms.items()),
    ]
    names = [_branch_name(arm, seed) for seed in range(plan.seeds) for arm in plan.arms]
    replaces = is_unfinished(plan.folder)  # what was trained to the end may have taken hours
    return Unfinished(plan.folder, request, names, plan.force, replaces), new


def _branch_name(arm: str, seed: int) -> str:
    """Return the name of a branch's run folder."""
    return f"{arm}-seed{seed}"


def _record(plan: _SeedPlan, unfinished: Unfinished) -> FixTrial:
    """Run every branch and decide.

    Arms alternate, so that a machine that becomes slower affects all of them.

    Raises:
        OutputError: there is no room. ScriptError: the unchanged training fails with the first
            seed.
        FixError: the fix did not act, the seeds change nothing, or there is no such metric.
    """
    runs: dict[tuple[str, int], TrainingRecord | str] = {}
    left = Remaining(plan.seeds * len(plan.arms))
    if not plan.quiet:
        say(f"{plan.seeds * len(plan.arms)} whole training runs, one after another")
    for seed in range(plan.seeds):
        for arm, fix in plan.arms.items():
            made = _branch_name(arm, seed) not in unfinished
            left.begin()
            runs[arm, seed] = _branch(plan, arm, seed, fix, unfinished, str(left))
            left.end(made)
            if (arm, seed) == ("baseline", 0) and isinstance(failed := runs[arm, seed], str):
                raise ScriptError(*f"the unchanged training failed: {failed}".split("\n", 1))
            if len(runs) == 1:  # before the hours that the others take
                _metric_of(plan.metric, runs)
            _check_seeds_differ(runs)
    metric = _metric_of(plan.metric, runs)
    branches = [_outcome(arm, seed, run, metric) for (arm, seed), run in runs.items()]
    return decide(
        plan.arms["fix"],
        plan.arms.get("control", ""),
        metric,
        branches,
        plan.margin,
        plan.lower_is_better,
    )


def _metric_of(named: str | None, runs: dict[tuple[str, int], TrainingRecord | str]) -> str:
    """Return the metric to compare.

    Raises:
        FixError: the branches have none in common, or none has the named one.
    """
    recorded = [run for run in runs.values() if isinstance(run, TrainingRecord)]
    try:
        metric = named or usual_metric(recorded)
    except ValueError as error:
        raise FixError(str(error)) from error
    if not any(metric in run.curves for run in recorded):
        names = sorted(set().union(*(run.curves for run in recorded)) - {"lr"})
        raise FixError(f"no branch has a metric {metric!r}; the metrics are {', '.join(names)}")
    return metric


def _branch(
    plan: _SeedPlan, arm: str, seed: int, fix: str, unfinished: Unfinished, left: str
) -> TrainingRecord | str:
    """Train once, unless that was already done; return what was recorded, or why there is nothing.

    Raises:
        FixError: the fix could not be applied.
    """
    run, log = plan.folder / _branch_name(arm, seed), plan.folder / f"{_branch_name(arm, seed)}.log"
    code = 0
    if run.name not in unfinished:
        if not plan.quiet:
            say(f"{arm}, seed {seed}{': ' + fix if fix else ''}{left}")
        code = _train(plan, run, log, arm, seed)
        if not code:
            unfinished.add(run.name)
    recorded: TrainingRecord | str
    try:
        recorded = read(run)
    except FeedlineError as error:
        recorded = str(error)
    if fix and isinstance(recorded, TrainingRecord) and (failed := _not_applied(recorded)):
        raise FixError(f"{failed}; see {log}")
    return f"exit code {code}; end of {log}:\n{child.tail(log)}" if code else recorded


def _train(plan: _SeedPlan, run: Path, log: Path, arm: str, seed: int) -> int:
    """Record one training; return and raise as ``child.run``."""
    fix = plan.arms[arm]
    with child.out_folder() as out:
        words = {
            child.OUT: str(out),
            "{arm}": arm,
            "{seed}": str(seed),
            "{checkpoint}": str(plan.checkpoint or ""),
        }
        program = [child.fill_placeholders(word, words) for word in plan.program]
        command = child.recording_command(run, ["--fix", fix] if fix else [], program, plan.ranks)
        variables = {f"FEEDLINE_{name.strip('{}').upper()}": value for name, value in words.items()}
        return child.run(command, log, {**os.environ, **variables})


def _not_applied(run: TrainingRecord) -> str:
    """Return the fixes that were not applied."""
    failed = run.setup.get("fixes_failed")
    return (
        "; ".join(f"{name}: {why}" for name, why in failed.items())
        if isinstance(failed, dict)
        else ""
    )


def _check_seeds_differ(runs: dict[tuple[str, int], TrainingRecord | str]) -> None:
    """Check that the first two seeds of the baseline have different losses. Raises FixError."""
    first = [
        run for seed in (0, 1) if isinstance(run := runs.get(("baseline", seed)), TrainingRecord)
    ]
    losses = [run.curves["train loss"].values for run in first if "train loss" in run.curves]
    if len(losses) == 2 and np.array_equal(losses[0], losses[1], equal_nan=True):
        raise FixError(
            "two seeds gave identical losses: pass {seed} in the training's arguments, or read "
            "FEEDLINE_SEED in it"
        )


def _outcome(arm: str, seed: int, run: TrainingRecord | str, metric: str) -> Branch:
    """Return the metric of a branch."""
    if isinstance(run, str):
        return Branch(arm, seed, None, 0.0, 0, None, masks.text(run.splitlines()[0]))
    value = final_value(run, metric)
    failed = "" if math.isfinite(value) else f"its {metric} is {value}"
    return Branch(
        arm, seed, value if not failed else None, run.samples, run.updates, run.step_s, failed
    )
