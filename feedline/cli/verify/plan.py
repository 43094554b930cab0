"""What is tried: a change of the loader or of the environment, in a training that was recorded."""

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
from feedline.cli.settings import LOADER, Value, as_code, refuse_impossible
from feedline.cli.whatif.prediction import Replayable, asked_change, replayable
from feedline.profiler.errors import FixError, ScriptError

_INTERVAL = 0.03  # half the width of a run's 95 % interval, as far as its steps vary by themselves
_TRIAL_S = 20.0  # of a run's steps, at most; two passes over the loader may take twice as long
_FIRST = 10  # steps in which workers start and queues fill
_FEWEST = 30
_WORKER_THREADS = "worker_threads"
#: Fixes that can be applied, though what they give is not predicted.
_NOT_PREDICTED: Mapping[str, Mapping[str, Value]] = {thread_oversubscription.RULE_ID: {_WORKER_THREADS: 1}}


@dataclass(frozen=True)
class PairPlan:
    """What to run.

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
    """The recording that a trial starts from.

    Raises:
        RunNotFound, RunDamaged, SchemaTooNew: as ``open_run``.
        FixError: it holds no loader whose settings could change.
    """
    found = replayable(path, again=True)
    if isinstance(found, Refused):
        raise FixError(f"{path}: {found.message}")
    return found


def plan_pairs(args: argparse.Namespace, program: list[str], found: Replayable) -> PairPlan:
    """What to run. Raises FixError, ScriptError."""
    facts = found.facts
    environment = {} if args.settings else _environment_of(args.fix, found)
    settings = args.settings or ({} if environment else _settings_of(args.fix, found))
    margin, fix = MARGIN if args.margin is None else args.margin / 100, args.fix or ""
    return PairPlan(
        tried=_tried_with(environment, found, fix, margin) if environment else tried(found, settings, fix, margin),
        settings=settings,
        program=program,
        stop_after=str(args.steps or steps(facts)),
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
    """The training as it is."""
    nothing = Tried("", "", "", "", 0.0, None, "")
    return PairPlan(nothing, {}, program, "", 0, args.ranks, args.output, tuple(args.writable), args.quiet)


def _settings_of(rule_id: str, found: Replayable) -> Mapping[str, Value]:
    """The settings that the fix of a finding changes.

    Raises:
        ScriptError: there is no such finding.
        FixError: its fix is more than settings.
    """
    change = found.change_of_fix(rule_id)
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


def _environment_of(rule_id: str, found: Replayable) -> dict[str, str]:
    """The environment variables that a finding's fix sets; {} if it sets none.

    Raises:
        ScriptError: the run has no finding with this id.
        FixError: it does not apply to this training.
    """
    if rule_id != page_faults.RULE_ID:
        return {}
    found.change_of_fix(rule_id)
    if given := page_faults.environment(found.facts):
        return given
    raise FixError(
        f"the fix of {rule_id} does not apply to this training: its malloc is not glibc's or is already configured in the environment, "
        "or the images are too large for this glibc or of unknown size"
    )


def _tried_with(environment: Mapping[str, str], found: Replayable, rule_id: str, margin: float) -> Tried:
    """Variables, with the prediction of the finding's fix."""
    return _tried(found, as_assignments(environment), _of_fix(found, page_faults.RULE_ID), rule_id, margin)


def as_assignments(environment: Mapping[str, str]) -> str:
    """``A=1 B=2``, as before a command."""
    return " ".join(f"{name}={value}" for name, value in environment.items())


def tried(found: Replayable, settings: Mapping[str, Value], rule_id: str, margin: float) -> Tried:
    """The change, with its prediction.

    Raises:
        ScriptError: torch would refuse it, or the training was recorded with it.
    """
    refuse_impossible(settings, found.settings)
    if all(found.settings.get(name) == value for name, value in settings.items()):
        raise ScriptError(f"the training was recorded with {as_code(settings)} already: there is nothing to compare")
    return _tried(found, as_code(settings), _prediction(found, settings), rule_id, margin)


def _tried(found: Replayable, change: str, predicted: PredictedRate | Refused, rule_id: str, margin: float) -> Tried:
    return Tried(
        change=change,
        finding=rule_id,
        made_at=str(found.settings.get("made_at", "")),
        unit="samples/s" if found.facts.throughput.samples_per_s else "steps/s",
        margin=margin,
        predicted=predicted if isinstance(predicted, PredictedRate) else None,
        refused=predicted.message if isinstance(predicted, Refused) else "",
        recorded=_recorded(found.throughput),
    )


def _recorded(pace: Throughput) -> Recorded | None:
    """The recorded rate, in the unit of the trial."""
    if pace.of_all_ranks:
        return Recorded(pace.of_all_ranks, pace.low, pace.high)
    return Recorded(pace.steps_per_s, None, None) if pace.steps_per_s else None


def _of_fix(found: Replayable, rule_id: str) -> PredictedRate | Refused:
    """What the fix of a finding of one rank is predicted to give."""
    change = change_of(rule_id, found.facts)
    assert not isinstance(change, Prediction)
    return found.predict(change) if isinstance(change, Change) else change


def _prediction(found: Replayable, settings: Mapping[str, Value]) -> PredictedRate | Refused:
    """As ``feedline whatif`` predicts it."""
    if settings == {_WORKER_THREADS: 1}:
        return _of_fix(found, thread_oversubscription.RULE_ID)
    if unknown := [name for name in settings if name not in LOADER]:
        return Refused("unknown_setting", f"the replay does not know what {', '.join(unknown)} changes")
    asked = asked_change(settings, Change(), found.facts, None)
    return asked if isinstance(asked, Refused) else found.predict(asked.change)


def steps(facts: RuleInputs) -> int:
    """How many steps a trial takes: until the mean step is known to 3 %, as far as the recorded ones vary, but no more than 20 s.

    A short pass over the loader is repeated whole, at least twice, because its beginning is a part of the throughput.
    """
    mean_s, spread_s = facts.step.mean_s, max(facts.step.p95_s - facts.step.median_s, 0.0) / 1.645
    wanted = (1.96 * spread_s / max(mean_s, 1e-9) / _INTERVAL) ** 2
    most = _TRIAL_S / max(mean_s, 1e-6)
    number = _FIRST + round(min(max(wanted, _FEWEST), max(most, _FEWEST)))
    length = _pass_steps(facts)
    if length is not None and 2 * length <= 2 * most:
        number = math.ceil(max(number, 2 * length) / length) * length
    return number


def _pass_steps(facts: RuleInputs) -> int | None:
    """Steps in one pass over the loader; None: not known."""
    samples, batch = facts.setting("epoch_samples"), facts.throughput.batch_size
    return max(1, round(samples / batch)) if isinstance(samples, int) and batch else None
