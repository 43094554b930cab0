"""Runs ``feedline verify`` for a change of speed, from its arguments to its last file."""

import argparse
from pathlib import Path

from feedline.analysis.explain.speed_trial import CODES, MARGIN, REJECT
from feedline.analysis.explain.tried import LEDGER, SPEED, identity
from feedline.analysis.report.console import Console
from feedline.analysis.report.json_report import plain
from feedline.cli import branch
from feedline.cli.output import name_files
from feedline.cli.predicting import Replayable
from feedline.cli.speed import guarded, pairs, text
from feedline.cli.speed import plan as planning
from feedline.cli.speed.loader_line import NoDiff, diff
from feedline.cli.speed.plan import Plan
from feedline.cli.unfinished import Unfinished, fingerprint
from feedline.profiler import masks
from feedline.profiler.deferred import deferred
from feedline.profiler.errors import ScriptError
from feedline.profiler.files import owned, results
from feedline.profiler.printable import say

_PATCH = "fix.patch"
_RECORD_S = 30  # of the recording that is made where none is given


def verify(args: argparse.Namespace, program: list[str]) -> int:
    """Record the training if need be, run the pairs, decide, and show the result.

    Raises:
        FixError: the change cannot be applied, or files cannot be protected. ScriptError: the training fails.
        Interrupted: Ctrl-C; the same command continues from there.
    """
    guarded.check(args.writable)
    program = ["--", *program] if pairs.is_command(program) else program
    new = results.prepare(args.output, [_PATCH], args.force)
    names = [pairs.name_of(arm, pair) for arm, pair in pairs.order(args.pairs)]
    asked = [*fingerprint(program), str(args.run_folder), str(args.fix), str(args.settings), str(args.steps), str(args.ranks)]
    owned.discard(args.output, _PATCH)  # of an earlier trial
    unfinished = Unfinished(args.output, asked, [*([] if args.run_folder else [pairs.RECORDED]), *names], args.force)
    with unfinished.resumable(new, named=True):
        run = args.run_folder or _recorded(args, program, unfinished)
        found = planning.read(run)
        plan = _plan_of(args, program, found)
        if not args.quiet:
            safe = "" if plan.writable else "; they can write only to their own folders, and to caches"
            say(f"{2 * plan.pairs} runs, each stopped after {plan.stop_after} steps{safe}")
        trial = pairs.record(plan, unfinished)
        console = Console(quiet=args.quiet)
        text.show(trial, console)
        (patch, why), kept = _lines_to_change(plan), trial.verdict != REJECT
        with deferred():
            entry = plain({"kind": SPEED, "run": identity(run), **vars(trial)})
            assert isinstance(entry, dict)
            branch.write(entry, args.output, args.json, program, patch=masks.token(patch) or None)
            if patch and kept:
                results.save(args.output, _PATCH, patch)
    if kept:
        _to_keep(patch, why, args.output / _PATCH, console)
    name_files(console, [args.output / LEDGER])
    return CODES[trial.verdict]


def _to_keep(patch: str, why: str, path: Path, console: Console) -> None:
    """Print how to keep the change.

    Args:
        path: of the patch.
        why: there is none, and what to write instead.
    """
    console.print()
    console.print(f"To keep it: patch -p0 < {path}" if patch else f"To keep it: {why}", soft_wrap=True)
    for line in masks.token(patch).split("\n")[:-1]:
        console.print(line.removesuffix("\r"), soft_wrap=True)


def _recorded(args: argparse.Namespace, program: list[str], unfinished: Unfinished) -> Path:
    """Record the unchanged training for half a minute, or as many steps as its runs will have; its folder.

    Raises:
        ScriptError: it fails.
    """
    run: Path = args.output / pairs.RECORDED
    if run.name in unfinished:
        return run
    if args.ranks > 1 and args.steps is None:
        raise ScriptError("with several ranks, the number of steps must be known beforehand: give a recorded run, or --steps")
    if not args.quiet:
        say("recording the unchanged training")
    nothing = planning.nothing_tried(args, program)
    stop_after = f"{_RECORD_S}s" if args.steps is None else str(args.steps)
    if failed := pairs.train(nothing, run.name, ["--stop-after", stop_after]):
        raise ScriptError(*f"the unchanged training failed: {failed}".split("\n", 1))
    unfinished.add(run.name)
    return run


def _plan_of(args: argparse.Namespace, program: list[str], found: Replayable) -> Plan:
    """What to run. Raises FixError, ScriptError."""
    facts = found.facts
    environment = {} if args.settings else planning.environment_of(args.fix, found)
    settings = args.settings or ({} if environment else planning.settings_of(args.fix, found))
    margin, fix = MARGIN if args.margin is None else args.margin / 100, args.fix or ""
    return Plan(
        tried=planning.tried_with(environment, found, fix, margin) if environment else planning.tried(found, settings, fix, margin),
        settings=settings,
        program=program,
        stop_after=str(args.steps or planning.steps(facts)),
        pairs=args.pairs,
        ranks=args.ranks,
        folder=args.output,
        writable=tuple(args.writable),
        quiet=args.quiet,
        kind=facts.loader.kind if facts.loader else "DataLoader",
        made_by=str(facts.setting("made_by", "")),
        environment=environment,
    )


def _lines_to_change(plan: Plan) -> tuple[str, str]:
    """The diff of the user's file; or "", and why there is none."""
    if plan.environment:
        return "", f"start the program with {planning.as_assignments(plan.environment)} in its environment"
    try:
        return diff(plan.tried.made_at, plan.made_by, plan.kind, plan.settings), ""
    except NoDiff as error:
        return "", str(error)
