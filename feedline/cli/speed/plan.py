"""What is tried: a change of the loader, in a training that was recorded."""

import argparse
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from feedline.analysis.build import TrainingInput, training_input
from feedline.analysis.facts import RuleInputs
from feedline.analysis.predict.change import Change, PredictedRate, Refused
from feedline.analysis.predict.replay_of import predict, recorded_input
from feedline.analysis.speed_trial import Tried
from feedline.cli.settings import Value, as_code, refuse_impossible
from feedline.profiler.errors import FixError, ScriptError
from feedline.profiler.store.opening import open_run
from feedline.profiler.store.parts import only

INTERVAL = 0.03  # half the width of a run's 95 % interval, as far as its steps vary by themselves
TRIAL_S = 20.0  # of a run's steps, at most; two passes over the loader may take twice as long
FIRST = 10  # steps in which workers start and queues fill
FEWEST = 30
WORKER_THREADS = "worker_threads"


@dataclass(frozen=True)
class Plan:
    """What to run.

    Attributes:
        settings: argument of the DataLoader -> value.
        program: script or ``-m module`` or a command, and its arguments with {out}.
        stop_after: as of ``feedline run --stop-after``.
        writable: what a trial may change besides its own folders.
        kind: class of the loader, such as "DataLoader".
        made_by: the installed library that makes it; "": the program.
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


def read(path: Path) -> TrainingInput:
    """The recording that a trial starts from.

    Raises:
        RunNotFound, RunDamaged, SchemaTooNew: as ``open_run``.
        FixError: no loader and no step were recorded.
    """
    found = training_input(only(open_run(path)))
    if found.facts is None or found.facts.loader is None:
        raise FixError(f"{path} has no training with a DataLoader: record one with `feedline run`")
    return found


def settings_of(rule_id: str, facts: RuleInputs) -> Mapping[str, Value]:
    """The settings that the fix of a finding changes.

    Raises:
        FixError: there is no such finding, or its fix is more than settings.
    """
    from feedline.analysis.diagnose import diagnose
    from feedline.analysis.predictions import change_of

    there = [finding.rule_id for finding in diagnose(facts)]
    if rule_id not in there:
        raise FixError(f"the run has no finding {rule_id!r}; its findings are {', '.join(there) or 'none'}")
    change = change_of(rule_id, facts)
    if isinstance(change, Refused):
        raise FixError(f"the fix of {rule_id} cannot be applied from outside: {change.message}")
    settings: dict[str, Value] = dict(change.settings)
    if not change.helper_threads:
        settings[WORKER_THREADS] = 1
    if not settings or change.stages and change.helper_threads or change.cpus is not None or not change.others:
        raise FixError(
            f"the fix of {rule_id} is a change of the program or the machine, not of the loader's settings: make it, record the training "
            "again, and compare both runs with `feedline diff`"
        )
    return settings


def tried(found: TrainingInput, settings: Mapping[str, Value], rule_id: str, margin: float) -> Tried:
    """The change, with its prediction.

    Raises:
        ScriptError: torch would refuse it.
    """
    facts = found.facts
    assert facts is not None and facts.loader is not None
    refuse_impossible(settings, facts.loader.settings)
    if all(facts.setting(name) == value for name, value in settings.items()):
        raise ScriptError(f"the training was recorded with {as_code(settings)} already: there is nothing to compare")
    predicted = prediction(found, settings)
    return Tried(
        change=as_code(settings),
        finding=rule_id,
        made_at=str(facts.setting("made_at", "")),
        unit="samples/s" if facts.throughput.samples_per_s else "steps/s",
        margin=margin,
        predicted=predicted if isinstance(predicted, PredictedRate) else None,
        refused=predicted.message if isinstance(predicted, Refused) else "",
    )


def prediction(found: TrainingInput, settings: Mapping[str, Value]) -> PredictedRate | Refused:
    """As ``feedline whatif`` predicts it."""
    assert found.facts is not None
    recorded = recorded_input(found.shown, found.facts)
    if isinstance(recorded, Refused):
        return recorded
    given = {name: int(value) for name, value in settings.items() if isinstance(value, (bool, int)) and name != WORKER_THREADS}
    unknown = [name for name in settings if name not in given and name != WORKER_THREADS]
    if unknown:
        return Refused("unknown_setting", f"the replay does not know what {', '.join(unknown)} changes")
    return predict(recorded, Change(settings=given, helper_threads=WORKER_THREADS not in settings))


def steps(facts: RuleInputs, settings: Mapping[str, Value]) -> int:
    """How many steps a trial takes: until the mean step is known to 3 %, as far as the recorded ones vary, but no more than 20 s.

    A short pass over the loader is repeated whole, at least twice, because its beginning is a part of the throughput.
    """
    mean_s, spread_s = facts.step.mean_s, max(facts.step.p95_s - facts.step.median_s, 0.0) / 1.645
    wanted = (1.96 * spread_s / max(mean_s, 1e-9) / INTERVAL) ** 2
    most = TRIAL_S / max(mean_s, 1e-6)
    number = FIRST + round(min(max(wanted, FEWEST), max(most, FEWEST)))
    length = pass_steps(facts)
    if length is not None and 2 * length <= 2 * most:
        number = math.ceil(max(number, 2 * length) / length) * length
    return number


def pass_steps(facts: RuleInputs) -> int | None:
    """Steps in one pass over the loader; None: not known."""
    samples, batch = facts.setting("epoch_samples"), facts.throughput.batch_size
    return max(1, round(samples / batch)) if isinstance(samples, int) and batch else None


def nothing_tried(args: argparse.Namespace, program: list[str]) -> Plan:
    """The training as it is."""
    nothing = Tried("", "", "", "", 0.0, None, "")
    return Plan(nothing, {}, program, "", 0, args.ranks, args.output, tuple(args.writable), args.quiet)
