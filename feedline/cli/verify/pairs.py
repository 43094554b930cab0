"""A change of the loader or the environment, tried in pairs of short runs: ``verify --set``."""

import argparse
import math
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from feedline.analysis.explain.measured import gather_ranks
from feedline.analysis.explain.speed_trial import (
    CHANGED,
    CODES,
    LEDGER,
    MARGIN,
    REJECT,
    SPEED,
    UNCHANGED,
    SpeedTrial,
    TrialRun,
    Tried,
    decide,
    identity,
)
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import Change, Refused
from feedline.analysis.ranks import comparison as between_ranks
from feedline.analysis.report import document_text
from feedline.analysis.report.console import Console
from feedline.analysis.report.json_report import plain
from feedline.analysis.rules.input import page_faults, thread_oversubscription
from feedline.cli import child
from feedline.cli.outputs import console_for, name_files
from feedline.cli.settings import WORKER_THREADS, Value
from feedline.cli.unfinished import Remaining, Unfinished, about, fingerprint
from feedline.cli.verify import write_guard
from feedline.cli.verify.guard import OUT, guard
from feedline.cli.verify.text import document_of, write_trial
from feedline.cli.verify.tried_change import NoDiff, as_assignments, loader_diff, tried, tried_with
from feedline.cli.whatif.prediction import Replayable, replayable
from feedline.profiler import masks
from feedline.profiler.deferred import deferred
from feedline.profiler.errors import FeedlineError, FixError, ScriptError
from feedline.profiler.files import owned, results
from feedline.profiler.printable import say
from feedline.profiler.store.manifest import OVERRIDES_HOOK
from feedline.profiler.store.run_folder import Run
from feedline.profiler.store.trainings import open_run, trainings

_SAFE_VERSION = 3  # version of Landlock from which on a file cannot be truncated either
_ALL_FILES = Path(write_guard.EVERYTHING)

#: Fixes that can be applied, though what they give is not predicted.
_NOT_PREDICTED: Mapping[str, Mapping[str, Value]] = {
    thread_oversubscription.RULE_ID: {WORKER_THREADS: 1}
}

_UNCHANGED_RUN = "recorded"
#: What costs time in a recording and says nothing about throughput; the same in both arms.
_LIGHT_RECORDING = ("--sample-interval", "1000000", "--torch-profiler", "off")
_DENIED_MESSAGES = (
    "Permission denied",
    "PermissionError",
    "cannot be opened",
    "Read-only file system",
)
_DENIED_PATH = re.compile(r"Permission denied: '([^'\n]+)'")
_PATCH = "fix.patch"
_RECORD_S = 30  # of the recording that is made where none is given
# half the width of a run's 95 % interval, as far as its steps vary by themselves
_HALF_WIDTH = 0.03
_MAX_TRIAL_S = 20.0  # of a run's steps, at most; two passes over the loader may take twice as long
_MAX_START_S = 60.0  # of a run, before its first step and after its last
_WARMUP_STEPS = 10  # steps in which workers start and queues fill
_MIN_TRIAL_STEPS = 30


@dataclass(frozen=True)
class _PairPlan:
    """The runs of a trial.

    Attributes:
        settings: argument of the DataLoader -> value.
        program: script or ``-m module`` or a command, and its arguments with {out}.
        stop_after: as of ``feedline run --stop-after``.
        writable: what a trial may change besides its own folders.
        kind: class of the loader, such as "DataLoader".
        made_by: the installed library that makes it; "": the program.
        environment: variables that are set instead of the loader's arguments.
    """

    tried: Tried
    settings: Mapping[str, Value]
    program: list[str]
    stop_after: str
    pairs: int
    ranks: int
    folder: Path
    writable: tuple[Path, ...]
    quiet: bool
    kind: str = "DataLoader"
    made_by: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


def verify_by_pairs(args: argparse.Namespace, program: list[str]) -> int:
    """Record the training if need be, run the pairs, decide, and show the result.

    Raises:
        FixError: the change cannot be applied, or files cannot be protected. ScriptError: the
            training fails.
        Interrupted: Ctrl-C; the same command continues from there.
    """
    _check_writable(args.writable)
    program = ["--", *program] if _is_command(program) else program
    new = results.prepare(args.output, [_PATCH], force=True)  # a patch of feedline's, never another
    names = [_run_name(arm, pair) for arm, pair in _order(args.pairs)]
    request = [
        *fingerprint(program),
        str(args.run_folder),
        str(args.fix),
        str(args.settings),
        str(args.steps),
        str(args.ranks),
    ]
    owned.discard(args.output, _PATCH)  # of an earlier trial
    unfinished = Unfinished(
        args.output,
        request,
        [*([] if args.run_folder else [_UNCHANGED_RUN]), *names],
        args.force,
        replaces=True,
    )
    with unfinished.resumable(new, named=True):
        run = args.run_folder or _record_unchanged(args, program, unfinished)
        recording = _read_recording(run)
        plan = _plan_pairs(args, program, recording)
        left = Remaining(2 * plan.pairs, _run_s(run, recording.facts, int(plan.stop_after)))
        if not args.quiet:
            safe = (
                "" if plan.writable else "; they can write only to their own folders, and to caches"
            )
            takes = f", about {about(left.seconds)} in all" if left.seconds else ""
            say(f"{2 * plan.pairs} runs, each stopped after {plan.stop_after} steps{takes}{safe}")
        trial = _record(plan, unfinished, left)
        console = console_for(args)
        document_text.show(document_of(trial), console)
        (patch, why), kept = _patch(plan), trial.verdict != REJECT and not _is_slower(trial)
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


def _is_command(program: list[str]) -> bool:
    """Return whether a program is a launcher, as in ``-- torchrun train.py``, and not a script."""
    return not os.path.exists(program[0]) and shutil.which(program[0]) is not None


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
        raise ScriptError(
            "with several ranks, the number of steps must be known beforehand: give a recorded "
            "run, or --steps"
        )
    if not args.quiet:
        takes = f"{_RECORD_S} s" if args.steps is None else f"{args.steps} steps"
        say(f"recording the unchanged training for {takes}")
    plan = _unchanged_plan(args, program)
    stop_after = f"{_RECORD_S}s" if args.steps is None else str(args.steps)
    if failed := _train(plan, run.name, ["--stop-after", stop_after]):
        raise ScriptError(*f"the unchanged training failed: {failed}".split("\n", 1))
    unfinished.add(run.name)
    return run


def _read_recording(path: Path) -> Replayable:
    """Read the recording that a trial starts from.

    Raises:
        RunNotFound, RunDamaged, SchemaTooNew: as ``open_run``.
        FixError: it holds no loader whose settings could change.
    """
    training = replayable(path, again=True)
    if isinstance(training, Refused):
        raise FixError(f"{path}: {training.message}")
    return training


def _plan_pairs(args: argparse.Namespace, program: list[str], training: Replayable) -> _PairPlan:
    """Plan the runs of a trial.

    Raises:
        ScriptError: there is no such finding, or nothing to compare.
        FixError: the change cannot be applied.
    """
    facts = training.facts
    environment = {} if args.settings else _environment_of(args.fix, training)
    settings = args.settings or ({} if environment else _settings_of(args.fix, training))
    margin, fix = MARGIN if args.margin is None else args.margin / 100, args.fix or ""
    steps = args.steps or _trial_steps(facts)
    _check_passes(settings, facts, steps, args.steps is not None)
    if "batch_size" in settings and not facts.throughput.samples_per_s:
        raise FixError("samples were not seen, so batches of different sizes cannot be compared")
    return _PairPlan(
        tried=tried_with(environment, training, fix, margin)
        if environment
        else tried(training, settings, fix, margin),
        settings=settings,
        program=program,
        stop_after=str(steps),
        pairs=args.pairs,
        ranks=args.ranks,
        folder=args.output,
        writable=tuple(args.writable),
        quiet=args.quiet,
        kind=facts.loader.kind if facts.loader else "DataLoader",
        made_by=str(facts.setting("made_by", "")),
        environment=environment,
    )


def _unchanged_plan(args: argparse.Namespace, program: list[str]) -> _PairPlan:
    """Plan a run of the training as it is."""
    nothing = Tried("", "", "", "", 0.0, None, "")
    return _PairPlan(
        nothing, {}, program, "", 0, args.ranks, args.output, tuple(args.writable), args.quiet
    )


def _trial_steps(facts: RuleInputs) -> int:
    """Return how many steps a trial takes.

    They suffice to know the mean step to 3 %, as far as the recorded ones vary, but take no more
    than 20 s. A short pass over the loader is repeated whole, at least twice, because its beginning
    is a part of the throughput.
    """
    mean_s, spread_s = facts.step.mean_s, max(facts.step.p95_s - facts.step.median_s, 0.0) / 1.645
    wanted = (1.96 * spread_s / max(mean_s, 1e-9) / _HALF_WIDTH) ** 2
    max_steps = _MAX_TRIAL_S / max(mean_s, 1e-6)
    number = _WARMUP_STEPS + round(
        min(max(wanted, _MIN_TRIAL_STEPS), max(max_steps, _MIN_TRIAL_STEPS))
    )
    length = _pass_steps(facts)
    if length is not None and 2 * length <= 2 * max_steps:
        number = math.ceil(max(number, 2 * length) / length) * length
    return number


def _check_passes(
    settings: Mapping[str, Value], facts: RuleInputs, steps: int, asked: bool
) -> None:
    """Check that a trial of workers that stay has a second pass, in which they are faster.

    Args:
        settings: that are tried.
        facts: of the recorded training.
        steps: of the trial.
        asked: whether the user named them, and so may know how many a pass has.

    Raises:
        FixError: it has none.
    """
    length = _pass_steps(facts)
    enough = asked if length is None else steps >= 2 * length
    if enough or settings != {"persistent_workers": True}:
        return
    why = "workers that stay are faster from the second pass on"
    if length is None:
        raise FixError(
            f"{why}, and the steps of a pass are not known: add --steps N for two passes"
        )
    raise FixError(f"{why}, which {steps} steps do not reach: add --steps {2 * length}")


def _pass_steps(facts: RuleInputs) -> int | None:
    """Return the steps in one pass over the loader; None: not known."""
    samples, batch = facts.setting("epoch_samples"), facts.throughput.batch_size
    return max(1, round(samples / batch)) if isinstance(samples, int) and batch else None


def _order(pairs: int) -> list[tuple[str, int]]:
    """Return arms and pairs.

    The arm that goes first alternates, so that a machine that becomes slower affects both.
    """
    both = (UNCHANGED, CHANGED)
    return [
        (arm, pair) for pair in range(1, pairs + 1) for arm in (both if pair % 2 else both[::-1])
    ]


def _run_name(arm: str, pair: int) -> str:
    """Return the name of a run folder."""
    return f"{arm}-{pair}"


def _run_s(recorded: Path, facts: RuleInputs, steps: int) -> float | None:
    """Return how long a run of so many steps takes: its start as recorded, then its steps.

    None: the recording does not say.
    """
    manifest = _run_of(recorded).ranks[min(_run_of(recorded).ranks)].manifest
    if len(manifest.anchors) < 2:
        return None
    whole_s = (manifest.anchors[-1]["time_ns"] - manifest.anchors[0]["time_ns"]) / 1e9
    steps_s = facts.throughput.steps * facts.step.mean_s
    return min(max(whole_s - steps_s, 0.0), _MAX_START_S) + steps * facts.step.mean_s


def _record(plan: _PairPlan, unfinished: Unfinished, left: Remaining) -> SpeedTrial:
    """Run all pairs and decide.

    Raises:
        OutputError: there is no room. ScriptError: the unchanged training fails at first.
        FixError: the change did not act, or samples were seen in some of the runs only.
    """
    runs: list[TrialRun] = []
    units: set[str] = set()
    for arm, pair in _order(plan.pairs):
        made = _run_name(arm, pair) not in unfinished
        left.begin()
        trial_run, own_unit = _trial_run(plan, arm, pair, unfinished, str(left))
        left.end(made)
        if (arm, pair) == (UNCHANGED, 1) and trial_run.failed:
            raise ScriptError(*f"the unchanged training failed: {trial_run.failed}".split("\n", 1))
        units |= {own_unit} - {""}
        if len(units) > 1:
            raise FixError(
                "samples were seen in some runs and not in others: their rates cannot be compared"
            )
        runs.append(replace(trial_run, failed=masks.text(_in_one_line(trial_run.failed))))
    return decide(replace(plan.tried, unit=units.pop() if units else plan.tried.unit), runs)


def _trial_run(
    plan: _PairPlan, arm: str, pair: int, unfinished: Unfinished, left: str
) -> tuple[TrialRun, str]:
    """Train for some steps, unless that was already done; also returns the unit of the rate.

    Raises:
        FixError: the change did not act.
    """
    name, at = _run_name(arm, pair), plan.tried.made_at
    options = [*_LIGHT_RECORDING, "--stop-after", plan.stop_after]
    changed = arm == CHANGED and bool(plan.settings)
    if changed:
        options += [
            "--set",
            ",".join(f"{key}={value}" for key, value in plan.settings.items()),
            *(["--set-at", at] if at else []),
        ]
    if name not in unfinished:
        if not plan.quiet:
            shown = plan.tried.change if arm == CHANGED else UNCHANGED
            say(f"{shown}, run {pair} of {plan.pairs}{left}")
        if failed := _train(plan, name, options, plan.environment if arm == CHANGED else {}):
            return TrialRun(arm, pair, None, 0, failed), ""
        unfinished.add(name)
    try:
        rate, steps, unit = _measured_rate(plan.folder / name)
    except FeedlineError as error:
        return TrialRun(arm, pair, None, 0, str(error)), ""
    if changed and (why := _not_changed(plan.folder / name)):
        raise FixError(f"the change was not applied: {why}; see {plan.folder / name}.log")
    return TrialRun(arm, pair, rate, steps, "" if rate else "it made no step"), unit


def _train(
    plan: _PairPlan,
    name: str,
    options: list[str],
    environment: Mapping[str, str] = MappingProxyType({}),
) -> str:
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


def _in_one_line(failed: str) -> str:
    """Return how a training failed, with the last line of its log, which names the exception."""
    first, *log = failed.splitlines() or [""]
    return f"{first} {log[-1].strip()}" if log else first


def _hint(log: Path) -> str:
    """Say what to do if a trial was not allowed to write."""
    output = child.tail(log)
    if not any(word in output for word in _DENIED_MESSAGES):
        return ""
    refused = _DENIED_PATH.findall(output)
    where = f", and it tried to change {masks.place(Path(refused[-1]))}" if refused else ""
    return (
        f" (trial runs must not overwrite files{where}: let the training write to {{out}}, as in "
        f"--output-dir {{out}}, "
        "or allow a folder with --writable DIR)"
    )


def _measured_rate(path: Path) -> tuple[float | None, int, str]:
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
    hooks = [
        hook
        for rank in _run_of(path).ranks.values()
        for hook in rank.manifest.hooks
        if hook["name"] == OVERRIDES_HOOK
    ]
    return next(
        (str(hook["why"]) for hook in hooks if not hook["attached"]),
        "" if hooks else "--set did not reach the training's processes",
    )


def _patch(plan: _PairPlan) -> tuple[str, str]:
    """Return the diff of the user's file; or "", and why there is none."""
    if plan.environment:
        return "", f"start the program with {as_assignments(plan.environment)} in its environment"
    try:
        return loader_diff(plan.tried.made_at, plan.made_by, plan.kind, plan.settings), ""
    except NoDiff as error:
        return "", str(error)


def _is_slower(trial: SpeedTrial) -> bool:
    """Tell whether the change made the training slower, if anything: it is not told how to keep it."""
    return trial.measured is not None and trial.measured.after < trial.measured.before


def _show_patch(patch: str, why: str, path: Path, console: Console) -> None:
    """Print how to keep the change.

    Args:
        patch: the diff; "": there is none.
        why: there is none, and what to write instead.
        path: file of the diff.
        console: to print on.
    """
    console.print()
    console.print(
        f"To keep it: patch -p0 < {path}" if patch else f"To keep it: {why}", soft_wrap=True
    )
    for line in masks.token(patch).split("\n")[:-1]:
        console.print(line.removesuffix("\r"), soft_wrap=True)


def _environment_of(rule_id: str, training: Replayable) -> dict[str, str]:
    """Return the environment variables that a finding's fix sets; {} if it sets none.

    Raises:
        ScriptError: the run has no finding with this id.
        FixError: it does not apply to this training.
    """
    if rule_id != page_faults.RULE_ID:
        return {}
    training.change_of_fix(rule_id)
    if variables := page_faults.environment(training.facts):
        return variables
    raise FixError(
        f"the fix of {rule_id} does not apply to this training: its malloc is not glibc's or is "
        f"already configured in the environment, "
        "or the images are too large for this glibc or of unknown size"
    )


def _settings_of(rule_id: str, training: Replayable) -> Mapping[str, Value]:
    """Return the settings that the fix of a finding changes.

    Raises:
        ScriptError: there is no such finding.
        FixError: its fix is more than settings.
    """
    change = training.change_of_fix(rule_id)
    if rule_id in _NOT_PREDICTED:
        return _NOT_PREDICTED[rule_id]
    if isinstance(change, Refused):
        raise FixError(
            f"feedline cannot apply the fix of {rule_id}: make the change, record the training "
            f"again, and compare both runs (feedline diff)"
        )
    if change != Change(settings=change.settings):
        raise FixError(
            f"the fix of {rule_id} is a change of the program or the machine, not of the loader's "
            f"settings: make it, record the training "
            "again, and compare both runs"
        )
    return change.settings


def _check_writable(writable: Sequence[Path]) -> None:
    """Check that files can be protected from a trial, unless the user does not ask for it.

    Raises:
        FixError: the kernel cannot, or a folder to write to does not exist.
    """
    for folder in writable:
        if not folder.exists():
            raise FixError(f"--writable {folder}: no such folder")
    if _ALL_FILES not in writable and write_guard.version() < _SAFE_VERSION:
        raise FixError(
            "this kernel cannot keep a trial from overwriting files (it has no Landlock, or one "
            "before Linux 6.2): make sure that the "
            "training writes only to {out}, and add --writable /"
        )
