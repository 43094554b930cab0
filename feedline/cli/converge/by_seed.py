"""Fixes for large batches, verified by seed: ``feedline verify --fix NAME=VALUE``."""

import argparse
import dataclasses
from pathlib import Path

from feedline.cli import branch
from feedline.cli.output import name_files
from feedline.profiler.deferred import deferred
from feedline.profiler.errors import FixError


def verify_by_seed(args: argparse.Namespace, program: list[str]) -> int:
    """Train every branch, decide, and show the result.

    Raises:
        FixError: the fix cannot be applied or compared. ScriptError: the training fails.
        Interrupted: Ctrl-C; the same command continues from there.
    """
    arms = _arms_of(args.fix, args.control)
    _check(program, args.checkpoint)

    from feedline.analysis.explain.speed_trial import CODES
    from feedline.analysis.explain.tried import LEDGER
    from feedline.analysis.report.console import Console
    from feedline.cli.converge.branches import Plan, begin, record
    from feedline.cli.converge.verify_text import show

    console = Console(quiet=args.quiet)
    margin = args.margin or 0.0
    plan = Plan(arms, program, args.checkpoint, args.seeds, args.ranks, args.output, args.force, args.metric, margin, args.quiet)
    unfinished, new = begin(plan)
    with unfinished.resumable(new, named=True):
        trial = record(plan, unfinished)
        show(trial, console)
        with deferred():
            branch.write(dataclasses.asdict(trial), args.output, args.json, program)
    name_files(console, [args.output / LEDGER])
    return CODES[trial.verdict]


def _arms_of(fix: str, control: str | None) -> dict[str, str]:
    """Arm -> its ``--fix`` text.

    Raises:
        FixError: a text that is none.
    """
    from feedline.convergence.apply import parse_fixes

    requests = parse_fixes(fix)
    if control is None:
        own = [request.fix.control.format(lr=getattr(request.setting, "lr", "")) for request in requests if request.fix.control]
        control = own[0] if len(own) == 1 else ""
    if control in ("none", fix):
        control = ""
    if control:
        try:
            parse_fixes(control)
        except FixError as error:
            raise FixError(f"control {control}: {error}; choose another with --control, or --control none") from error
    return {"baseline": "", "fix": fix, **({"control": control} if control else {})}


def _check(program: list[str], checkpoint: Path | None) -> None:
    """Check that there is a training to run, and that its checkpoint can be used.

    Raises:
        FixError: there is not, or it cannot.
    """
    if not program:
        raise FixError("no training given: add it after `--`, as in feedline verify --fix ... -- train.py ARGS")
    if checkpoint is not None and not checkpoint.is_file():
        raise FixError(f"checkpoint {checkpoint} does not exist: give the path of the file that the training loads")
    if checkpoint is not None and not any("{checkpoint}" in word for word in program):
        raise FixError("the training is not told which checkpoint to load: add {checkpoint} to its arguments, as in --resume {checkpoint}")
