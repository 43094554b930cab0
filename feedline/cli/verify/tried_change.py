"""What is tried in pairs of runs: the settings or variables of a change, and what was predicted of it."""

from collections.abc import Mapping

from feedline.analysis.explain.predictions import change_of
from feedline.analysis.explain.speed_trial import Recorded, Tried
from feedline.analysis.ledger.change import Change, Refused
from feedline.analysis.ledger.finding import PredictedRate
from feedline.analysis.measure.model import Throughput
from feedline.analysis.ranks.communication import Prediction
from feedline.analysis.rules.input import page_faults, thread_oversubscription
from feedline.cli.settings import LOADER, WORKER_THREADS, Value, as_code, refuse_impossible
from feedline.cli.whatif.prediction import Replayable, change_of_settings
from feedline.profiler.errors import FixError, ScriptError

#: Fixes that can be applied, though what they give is not predicted.
_NOT_PREDICTED: Mapping[str, Mapping[str, Value]] = {
    thread_oversubscription.RULE_ID: {WORKER_THREADS: 1}
}


def settings_of(rule_id: str, training: Replayable) -> Mapping[str, Value]:
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


def environment_of(rule_id: str, training: Replayable) -> dict[str, str]:
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


def tried(
    training: Replayable, settings: Mapping[str, Value], rule_id: str, margin: float
) -> Tried:
    """Return a change of settings, with its prediction.

    Raises:
        ScriptError: torch would refuse it, or the training was recorded with it.
    """
    refuse_impossible(settings, training.settings)
    if all(training.settings.get(name) == value for name, value in settings.items()):
        raise ScriptError(
            f"the training was recorded with {as_code(settings)} already: there is nothing to "
            f"compare"
        )
    return _tried_change(
        training, as_code(settings), _prediction(training, settings), rule_id, margin
    )


def tried_with(
    environment: Mapping[str, str], training: Replayable, rule_id: str, margin: float
) -> Tried:
    """Return a change of the environment, with the prediction of the finding's fix."""
    return _tried_change(
        training,
        as_assignments(environment),
        _of_fix(training, page_faults.RULE_ID),
        rule_id,
        margin,
    )


def _tried_change(
    training: Replayable,
    change: str,
    predicted: PredictedRate | Refused,
    rule_id: str,
    margin: float,
) -> Tried:
    return Tried(
        change=change,
        finding=rule_id,
        made_at=str(training.settings.get("made_at", "")),
        unit="samples/s" if training.facts.throughput.samples_per_s else "steps/s",
        margin=margin,
        predicted=predicted if isinstance(predicted, PredictedRate) else None,
        refused=predicted.message if isinstance(predicted, Refused) else "",
        recorded=_recorded_rate(training.throughput),
    )


def _recorded_rate(throughput: Throughput) -> Recorded | None:
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
        return Refused(
            "unknown_setting", f"the replay does not know what {', '.join(unknown)} changes"
        )
    asked = change_of_settings(settings, Change(), training.facts, None)
    return asked if isinstance(asked, Refused) else training.predict(asked.change)


def as_assignments(environment: Mapping[str, str]) -> str:
    """Return ``A=1 B=2``, as before a command."""
    return " ".join(f"{name}={value}" for name, value in environment.items())
