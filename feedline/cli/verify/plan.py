"""What a trial by pairs tries: a change of the loader or of the environment."""

import argparse
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from feedline.analysis.explain.predictions import change_of
from feedline.analysis.explain.speed_trial import MARGIN, Recorded, Tried
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.measure.model import Throughput
from feedline.analysis.predict.change import Change, PredictedRate, Refused
from feedline.analysis.ranks.model import Prediction
from feedline.analysis.rules.input import page_faults, thread_oversubscription
from feedline.cli.settings import LOADER, WORKER_THREADS, Value, as_code, refuse_impossible
from feedline.cli.whatif.prediction import Replayable, change_of_settings, replayable
from feedline.profiler.errors import FixError, ScriptError

_HALF_WIDTH = 0.03  # half the width of a run's 95 % interval, as far as its steps vary by themselves
_MAX_TRIAL_S = 20.0  # of a run's steps, at most; two passes over the loader may take twice as long
_WARMUP_STEPS = 10  # steps in which workers start and queues fill
_MIN_TRIAL_STEPS = 30
#: Fixes that can be applied, though what they give is not predicted.
_NOT_PREDICTED: Mapping[str, Mapping[str, Value]] = {thread_oversubscription.RULE_ID: {WORKER_THREADS: 1}}


@dataclass(frozen=True)
class PairPlan:
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


def read_recording(path: Path) -> Replayable:
    """Read the recording that a trial starts from.

    Raises:
        RunNotFound, RunDamaged, SchemaTooNew: as ``open_run``.
        FixError: it holds no loader whose settings could change.
    """
    training = replayable(path, again=True)
    if isinstance(training, Refused):
        raise FixError(f"{path}: {training.message}")
    return training


def plan_pairs(args: argparse.Namespace, program: list[str], training: Replayable) -> PairPlan:
    """Plan the runs of a trial.

    Raises:
        ScriptError: there is no such finding, or nothing to compare.
        FixError: the change cannot be applied.
    """
    facts = training.facts
    environment = {} if args.settings else _environment_of(args.fix, training)
    settings = args.settings or ({} if environment else _settings_of(args.fix, training))
    margin, fix = MARGIN if args.margin is None else args.margin / 100, args.fix or ""
    return PairPlan(
        tried=_tried_with(environment, training, fix, margin) if environment else tried(training, settings, fix, margin),
        settings=settings,
        program=program,
        stop_after=str(args.steps or _steps(facts)),
        pairs=args.pairs,
        ranks=args.ranks,
        folder=args.output,
        writable=tuple(args.writable),
        quiet=args.quiet,
        kind=facts.loader.kind if facts.loader else "DataLoader",
        made_by=str(facts.setting("made_by", "")),
        environment=environment,
    )


def unchanged_plan(args: argparse.Namespace, program: list[str]) -> PairPlan:
    """Plan a run of the training as it is."""
    nothing = Tried("", "", "", "", 0.0, None, "")
    return PairPlan(nothing, {}, program, "", 0, args.ranks, args.output, tuple(args.writable), args.quiet)


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
            f"feedline cannot apply the fix of {rule_id}: make the change, record the training again, and compare both runs (feedline diff)"
        )
    if change != Change(settings=change.settings):
        raise FixError(
            f"the fix of {rule_id} is a change of the program or the machine, not of the loader's settings: make it, record the training "
            "again, and compare both runs"
        )
    return change.settings


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
        f"the fix of {rule_id} does not apply to this training: its malloc is not glibc's or is already configured in the environment, "
        "or the images are too large for this glibc or of unknown size"
    )


def _tried_with(environment: Mapping[str, str], training: Replayable, rule_id: str, margin: float) -> Tried:
    """Return a change of the environment, with the prediction of the finding's fix."""
    return _tried(training, as_assignments(environment), _of_fix(training, page_faults.RULE_ID), rule_id, margin)


def as_assignments(environment: Mapping[str, str]) -> str:
    """Return ``A=1 B=2``, as before a command."""
    return " ".join(f"{name}={value}" for name, value in environment.items())


def tried(training: Replayable, settings: Mapping[str, Value], rule_id: str, margin: float) -> Tried:
    """Return a change of settings, with its prediction.

    Raises:
        ScriptError: torch would refuse it, or the training was recorded with it.
    """
    refuse_impossible(settings, training.settings)
    if all(training.settings.get(name) == value for name, value in settings.items()):
        raise ScriptError(f"the training was recorded with {as_code(settings)} already: there is nothing to compare")
    return _tried(training, as_code(settings), _prediction(training, settings), rule_id, margin)


def _tried(training: Replayable, change: str, predicted: PredictedRate | Refused, rule_id: str, margin: float) -> Tried:
    return Tried(
        change=change,
        finding=rule_id,
        made_at=str(training.settings.get("made_at", "")),
        unit="samples/s" if training.facts.throughput.samples_per_s else "steps/s",
        margin=margin,
        predicted=predicted if isinstance(predicted, PredictedRate) else None,
        refused=predicted.message if isinstance(predicted, Refused) else "",
        recorded=_recorded(training.throughput),
    )


def _recorded(throughput: Throughput) -> Recorded | None:
    """Return the recorded rate, in the unit of the trial."""
    if throughput.of_all_ranks:
        return Recorded(throughput.of_all_ranks, throughput.low, throughput.high)
    return Recorded(throughput.steps_per_s, None, None) if throughput.steps_per_s else None


def _of_fix(training: Replayable, rule_id: str) -> PredictedRate | Refused:
    """Predict the fix of a finding of one rank."""
    change = change_of(rule_id, training.facts)
    assert not isinstance(change, Prediction)
    return training.predict(change) if isinstance(change, Change) else change


def _prediction(training: Replayable, settings: Mapping[str, Value]) -> PredictedRate | Refused:
    """Predict as ``feedline whatif`` does."""
    if settings == {WORKER_THREADS: 1}:
        return _of_fix(training, thread_oversubscription.RULE_ID)
    if unknown := [name for name in settings if name not in LOADER]:
        return Refused("unknown_setting", f"the replay does not know what {', '.join(unknown)} changes")
    asked = change_of_settings(settings, Change(), training.facts, None)
    return asked if isinstance(asked, Refused) else training.predict(asked.change)


def _steps(facts: RuleInputs) -> int:
    """Return how many steps a trial takes.

    They suffice to know the mean step to 3 %, as far as the recorded ones vary, but take no more
    than 20 s. A short pass over the loader is repeated whole, at least twice, because its beginning
    is a part of the throughput.
    """
    mean_s, spread_s = facts.step.mean_s, max(facts.step.p95_s - facts.step.median_s, 0.0) / 1.645
    wanted = (1.96 * spread_s / max(mean_s, 1e-9) / _HALF_WIDTH) ** 2
    max_steps = _MAX_TRIAL_S / max(mean_s, 1e-6)
    number = _WARMUP_STEPS + round(min(max(wanted, _MIN_TRIAL_STEPS), max(max_steps, _MIN_TRIAL_STEPS)))
    length = _pass_steps(facts)
    if length is not None and 2 * length <= 2 * max_steps:
        number = math.ceil(max(number, 2 * length) / length) * length
    return number


def _pass_steps(facts: RuleInputs) -> int | None:
    """Return the steps in one pass over the loader; None: not known."""
    samples, batch = facts.setting("epoch_samples"), facts.throughput.batch_size
    return max(1, round(samples / batch)) if isinstance(samples, int) and batch else None
