"""A change of speed, tried in pairs of short runs: ``feedline verify --set``."""

import argparse
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from feedline.analysis.explain.build import gather_ranks
from feedline.analysis.explain.speed_trial import CHANGED, CODES, REJECT, UNCHANGED, SpeedTrial, TrialRun, decide
from feedline.analysis.explain.tried import LEDGER, SPEED, identity
from feedline.analysis.ranks import recorded as between_ranks
from feedline.analysis.report.console import Console
from feedline.analysis.report.json_report import plain
from feedline.cli import child
from feedline.cli.outputs import name_files
from feedline.cli.unfinished import Unfinished, fingerprint
from feedline.cli.verify.guard import OUT, check_writable, guard
from feedline.cli.verify.loader_line import NoDiff, loader_diff
from feedline.cli.verify.plan import PairPlan, as_assignments, plan_pairs, read_recording, unchanged_plan
from feedline.cli.verify.text import show_pairs, write_trial
from feedline.profiler import masks
from feedline.profiler.deferred import deferred
from feedline.profiler.errors import FeedlineError, FixError, ScriptError
from feedline.profiler.files import owned, results
from feedline.profiler.printable import say
from feedline.profiler.session import overrides
from feedline.profiler.store.opening import open_run
from feedline.profiler.store.read import Run
from feedline.profiler.store.trainings import trainings

_UNCHANGED_RUN = "recorded"
#: What costs time in a recording and says nothing about throughput; the same in both arms.
_LIGHT_RECORDING = ("--sample-interval", "1000000", "--torch-profiler", "off")
_DENIED_MESSAGES = ("Permission denied", "PermissionError", "cannot be opened", "Read-only file system")
_DENIED_PATH = re.compile(r"Permission denied: '([^'\n]+)'")
_PATCH = "fix.patch"
_RECORD_S = 30  # of the recording that is made where none is given


def verify_by_pairs(args: argparse.Namespace, program: list[str]) -> int:
    """Record the training if need be, run the pairs, decide, and show the result.

    Raises:
        FixError: the change cannot be applied, or files cannot be protected. ScriptError: the
            training fails.
        Interrupted: Ctrl-C; the same command continues from there.
    """
    check_writable(args.writable)
    program = ["--", *program] if _is_command(program) else program
    new = results.prepare(args.output, [_PATCH], args.force)
    names = [_run_name(arm, pair) for arm, pair in order(args.pairs)]
    asked = [*fingerprint(program), str(args.run_folder), str(args.fix), str(args.settings), str(args.steps), str(args.ranks)]
    owned.discard(args.output, _PATCH)  # of an earlier trial
    unfinished = Unfinished(args.output, asked, [*([] if args.run_folder else [_UNCHANGED_RUN]), *names], args.force)
    with unfinished.resumable(new, named=True):
        run = args.run_folder or _record_unchanged(args, program, unfinished)
        recording = read_recording(run)
        plan = plan_pairs(args, program, recording)
        if not args.quiet:
            safe = "" if plan.writable else "; they can write only to their own folders, and to caches"
            say(f"{2 * plan.pairs} runs, each stopped after {plan.stop_after} steps{safe}")
        trial = _record(plan, unfinished)
        console = Console(quiet=args.quiet)
        show_pairs(trial, console)
        (patch, why), kept = _patch(plan), trial.verdict != REJECT
        with deferred():
            entry = plain({"kind": SPEED, "run": identity(run), **vars(trial)})
            assert isinstance(entry, dict)
            write_trial(entry, args.output, args.json, program, patch=masks.token(patch) or None)
            if patch and kept:
                results.save(args.output, _PATCH, patch)
    if kept:
        _show_patch(patch, why, args.output / _PATCH, console)
    name_files(console, [args.output / LEDGER])
    return CODES[trial.verdict]


def _record_unchanged(args: argparse.Namespace, program: list[str], unfinished: Unfinished) -> Path:
    """Record the unchanged training, and return its folder.

    That takes half a minute, or as many steps as its runs will have.

    Raises:
        ScriptError: it fails.
    """
    run: Path = args.output / _UNCHANGED_RUN
    if run.name in unfinished:
        return run
    if args.ranks > 1 and args.steps is None:
        raise ScriptError("with several ranks, the number of steps must be known beforehand: give a recorded run, or --steps")
    if not args.quiet:
        say("recording the unchanged training")
    plan = unchanged_plan(args, program)
    stop_after = f"{_RECORD_S}s" if args.steps is None else str(args.steps)
    if failed := train(plan, run.name, ["--stop-after", stop_after]):
        raise ScriptError(*f"the unchanged training failed: {failed}".split("\n", 1))
    unfinished.add(run.name)
    return run


def _patch(plan: PairPlan) -> tuple[str, str]:
    """Return the diff of the user's file; or "", and why there is none."""
    if plan.environment:
        return "", f"start the program with {as_assignments(plan.environment)} in its environment"
    try:
        return loader_diff(plan.tried.made_at, plan.made_by, plan.kind, plan.settings), ""
    except NoDiff as error:
        return "", str(error)


def _show_patch(patch: str, why: str, path: Path, console: Console) -> None:
    """Print how to keep the change.

    Args:
        patch: the diff; "": there is none.
        why: there is none, and what to write instead.
        path: file of the diff.
        console: to print on.
    """
    console.print()
    console.print(f"To keep it: patch -p0 < {path}" if patch else f"To keep it: {why}", soft_wrap=True)
    for line in masks.token(patch).split("\n")[:-1]:
        console.print(line.removesuffix("\r"), soft_wrap=True)


def order(pairs: int) -> list[tuple[str, int]]:
    """Return arms and pairs.

    The arm that goes first alternates, so that a machine that becomes slower affects both.
    """
    both = (UNCHANGED, CHANGED)
    return [(arm, pair) for pair in range(1, pairs + 1) for arm in (both if pair % 2 else both[::-1])]


def _run_name(arm: str, pair: int) -> str:
    """Return the name of a run folder."""
    return f"{arm}-{pair}"


def _record(plan: PairPlan, unfinished: Unfinished) -> SpeedTrial:
    """Run all pairs and decide.

    Raises:
        OutputError: there is no room. ScriptError: the unchanged training fails at first.
        FixError: the change did not act.
    """
    runs: list[TrialRun] = []
    unit = plan.tried.unit
    for arm, pair in order(plan.pairs):
        trial_run, own_unit = _trial_run(plan, arm, pair, unfinished)
        if (arm, pair) == (UNCHANGED, 1) and trial_run.failed:
            raise ScriptError(*f"the unchanged training failed: {trial_run.failed}".split("\n", 1))
        unit = own_unit or unit
        runs.append(replace(trial_run, failed=masks.text(in_one_line(trial_run.failed))))
    return decide(replace(plan.tried, unit=unit), runs)


def in_one_line(failed: str) -> str:
    """Return how a training failed, with the last line of its log, which names the exception."""
    first, *log = failed.splitlines() or [""]
    return f"{first} {log[-1].strip()}" if log else first


def _trial_run(plan: PairPlan, arm: str, pair: int, unfinished: Unfinished) -> tuple[TrialRun, str]:
    """Train for some steps, unless that was already done; also returns the unit of the rate.

    Raises:
        FixError: the change did not act.
    """
    name, at = _run_name(arm, pair), plan.tried.made_at
    options = [*_LIGHT_RECORDING, "--stop-after", plan.stop_after]
    changed = arm == CHANGED and bool(plan.settings)
    if changed:
        options += ["--set", ",".join(f"{key}={value}" for key, value in plan.settings.items()), *(["--set-at", at] if at else [])]
    if name not in unfinished:
        if not plan.quiet:
            say(f"{plan.tried.change if arm == CHANGED else UNCHANGED}, run {pair} of {plan.pairs}")
        if failed := train(plan, name, options, plan.environment if arm == CHANGED else {}):
            return TrialRun(arm, pair, None, 0, failed), ""
        unfinished.add(name)
    try:
        rate, steps, unit = _rate_of(plan.folder / name)
    except FeedlineError as error:
        return TrialRun(arm, pair, None, 0, str(error)), ""
    if changed and (why := _not_changed(plan.folder / name)):
        raise FixError(f"the change was not applied: {why}; see {plan.folder / name}.log")
    return TrialRun(arm, pair, rate, steps, "" if rate else "it made no step"), unit


def train(plan: PairPlan, name: str, options: list[str], environment: Mapping[str, str] = MappingProxyType({})) -> str:
    """Run the training once, recorded; return why it failed, or "".

    Raises:
        OutputError: an older run cannot be removed. Others as ``child.run``.
    """
    run, log = plan.folder / name, plan.folder / f"{name}.log"
    with results.run_folder(run), guard(run, plan.writable) as guarded:
        program = [child.fill_placeholders(word, {OUT: str(guarded.out)}) for word in plan.program]
        command = [*guarded.command, *child.recording_command(run, options, program, plan.ranks)]
        code = child.run(command, log, {**guarded.environment, **environment}, leaves_nothing=True)
    return f"exit code {code}{_hint(log)}; end of {log}:\n{child.tail(log)}" if code else ""


def _hint(log: Path) -> str:
    """Say what to do if a trial was not allowed to write."""
    output = child.tail(log)
    if not any(word in output for word in _DENIED_MESSAGES):
        return ""
    refused = _DENIED_PATH.findall(output)
    where = f", and it tried to change {masks.place(Path(refused[-1]))}" if refused else ""
    return (
        f" (trial runs must not overwrite files{where}: let the training write to {{out}}, as in --output-dir {{out}}, "
        "or allow a folder with --writable DIR)"
    )


def _rate_of(path: Path) -> tuple[float | None, int, str]:
    """Return the steady throughput of a run, its steps, and the unit.

    That is samples/s, or steps/s if samples were not seen.

    Raises:
        FeedlineError: it cannot be read.
    """
    gathered = gather_ranks(_run_of(path), [])
    throughput = between_ranks.throughput(gathered, gathered[min(gathered)])
    if throughput.of_all_ranks:
        return throughput.of_all_ranks, throughput.steps, "samples/s"
    return throughput.steps_per_s, throughput.steps, "steps/s"


def _run_of(path: Path) -> Run:
    """Return the training in a run folder: one below it if the command is a launcher."""
    recorded = trainings(path)
    return recorded[0].run if len(recorded) == 1 else open_run(path)


def _not_changed(path: Path) -> str:
    """Return why no loader was changed."""
    hooks = [hook for rank in _run_of(path).ranks.values() for hook in rank.manifest.hooks if hook["name"] == overrides.NAME]
    return next(
        (str(hook["why"]) for hook in hooks if not hook["attached"]), "" if hooks else "--set did not reach the training's processes"
    )


def _is_command(program: list[str]) -> bool:
    """Return whether a program is a launcher, as in ``-- torchrun train.py``, and not a script."""
    return not os.path.exists(program[0]) and shutil.which(program[0]) is not None
