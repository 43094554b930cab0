"""Runs the pairs of a trial, one run after another, and reads their recordings."""

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from feedline.analysis.explain.measured import gather_ranks
from feedline.analysis.explain.speed_trial import CHANGED, UNCHANGED, SpeedTrial, TrialRun, decide
from feedline.analysis.ranks import comparison as between_ranks
from feedline.cli import branch, child
from feedline.cli.speed.guarded import OUT, guard
from feedline.cli.speed.plan import Plan
from feedline.cli.unfinished import Unfinished
from feedline.profiler import masks
from feedline.profiler.errors import FeedlineError, FixError, ScriptError
from feedline.profiler.files import results
from feedline.profiler.printable import say
from feedline.profiler.session import overrides
from feedline.profiler.store.run_folder import Run
from feedline.profiler.store.trainings import open_run, trainings

RECORDED = "recorded"
#: What costs time in a recording and says nothing about throughput; the same in both arms.
_LIGHT = ("--sample-interval", "1000000", "--torch-profiler", "off")
_DENIED = ("Permission denied", "PermissionError", "cannot be opened", "Read-only file system")
_REFUSED = re.compile(r"Permission denied: '([^'\n]+)'")


def order(pairs: int) -> list[tuple[str, int]]:
    """Arms and pairs. The arm that goes first alternates, so that a machine that becomes slower affects both."""
    both = (UNCHANGED, CHANGED)
    return [(arm, pair) for pair in range(1, pairs + 1) for arm in (both if pair % 2 else both[::-1])]


def name_of(arm: str, pair: int) -> str:
    """Name of a run folder."""
    return f"{arm}-{pair}"


def record(plan: Plan, unfinished: Unfinished) -> SpeedTrial:
    """Run all pairs and decide.

    Raises:
        OutputError: there is no room. ScriptError: the unchanged training fails at first.
        FixError: the change did not act.
    """
    runs: list[TrialRun] = []
    unit = plan.tried.unit
    for arm, pair in order(plan.pairs):
        done, own = _trial_run(plan, arm, pair, unfinished)
        if (arm, pair) == (UNCHANGED, 1) and done.failed:
            raise ScriptError(*f"the unchanged training failed: {done.failed}".split("\n", 1))
        unit = own or unit
        runs.append(replace(done, failed=masks.text(in_one_line(done.failed))))
    return decide(replace(plan.tried, unit=unit), runs)


def in_one_line(failed: str) -> str:
    """How a training failed, and the last line of its log, where Python names the exception."""
    first, *log = failed.splitlines() or [""]
    return f"{first} {log[-1].strip()}" if log else first


def _trial_run(plan: Plan, arm: str, pair: int, unfinished: Unfinished) -> tuple[TrialRun, str]:
    """Train for some steps, unless that was already done; also returns the unit of the rate.

    Raises:
        FixError: the change did not act.
    """
    name, at = name_of(arm, pair), plan.tried.made_at
    options = [*_LIGHT, "--stop-after", plan.stop_after]
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


def train(plan: Plan, name: str, options: list[str], environment: Mapping[str, str] = MappingProxyType({})) -> str:
    """Run the training once, recorded. Returns why it failed; "": it did not.

    Raises:
        OutputError: an older run cannot be removed. Others as ``child.run``.
    """
    run, log = plan.folder / name, plan.folder / f"{name}.log"
    with results.run_folder(run), guard(run, plan.writable) as guarded:
        program = [branch.filled(word, {OUT: str(guarded.out)}) for word in plan.program]
        command = [*guarded.command, *branch.command(run, options, program, plan.ranks)]
        code = child.run(command, log, {**guarded.environment, **environment}, leaves_nothing=True)
    return f"exit code {code}{_hint(log)}; end of {log}:\n{child.tail(log)}" if code else ""


def _hint(log: Path) -> str:
    """What to do where a trial was refused to write."""
    said = child.tail(log)
    if not any(word in said for word in _DENIED):
        return ""
    named = _REFUSED.findall(said)
    where = f", and it tried to change {masks.place(Path(named[-1]))}" if named else ""
    return (
        f" (trial runs must not overwrite files{where}: let the training write to {{out}}, as in --output-dir {{out}}, "
        "or allow a folder with --writable DIR)"
    )


def _rate_of(path: Path) -> tuple[float | None, int, str]:
    """Steady throughput of a run, its steps, and the unit: samples/s, or steps/s where samples were not seen.

    Raises:
        FeedlineError: it cannot be read.
    """
    gathered = gather_ranks(_run_of(path), [])
    pace = between_ranks.throughput(gathered, gathered[min(gathered)])
    if pace.of_all_ranks:
        return pace.of_all_ranks, pace.steps, "samples/s"
    return pace.steps_per_s, pace.steps, "steps/s"


def _run_of(path: Path) -> Run:
    """The training in a run folder: one below it where the command is a launcher."""
    found = trainings(path)
    return found[0].run if len(found) == 1 else open_run(path)


def _not_changed(path: Path) -> str:
    """Why no loader was changed."""
    hooks = [hook for rank in _run_of(path).ranks.values() for hook in rank.manifest.hooks if hook["name"] == overrides.OVERRIDES_HOOK]
    return next(
        (str(hook["why"]) for hook in hooks if not hook["attached"]), "" if hooks else "--set did not reach the training's processes"
    )


def is_command(program: list[str]) -> bool:
    """Whether a program is a launcher, as in ``-- torchrun train.py``, and not a script."""
    return not os.path.exists(program[0]) and shutil.which(program[0]) is not None
