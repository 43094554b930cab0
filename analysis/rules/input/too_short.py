"""Too few steps, or steps that vary too much, to say what limits the training."""

import math

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import SHARE, Evidence, Finding, Refused, Severity
from feedline.analysis.ledger.rule import Rule, Statement
from feedline.analysis.ledger.view.enough_steps import HIGH_SHARE, MIN_VERDICT_STEPS, input_known
from feedline.analysis.ledger.view.input_wait import MIN_WAIT_SHARE, input_wait, steady_share
from feedline.analysis.measure.model import Certainty
from feedline.analysis.measure.stages import UNATTRIBUTED
from feedline.analysis.text.formatting import count, counted, percent, share_range
from feedline.analysis.text.sentences import PART, TIME, Sentence

_RULE_ID = "too_short"

_ONLY_TIMED = Sentence(
    "it is unknown what takes {longer} of the {mean} step: those steps were only timed",
    longer=TIME,
    mean=TIME,
)
_FEW = Sentence("too short to judge: only {steps}", steps=PART)
_VARY = Sentence(
    "too short to judge the input: {steps} are too few, because their times vary so much",
    steps=PART,
)
_TAKES = Sentence("the input takes {between}{aside}", between=PART, aside=PART)
_UNKNOWN = "what limits the training is unknown"
_INPUT_UNKNOWN = "whether the input limits the training is unknown"  # something else may
_TRAIN = Sentence("Train for {steps} steps or more.", steps=PART)
_ERROR = Sentence("Fix the error first: the training {failed}.", failed=PART)
_NEEDS = Sentence("A verdict needs {steps} steps or more.", steps=PART)

_RECORD_ALL = (
    "Record again with the environment variable FEEDLINE_RESTS=0: every step is then "
    "recorded in detail."
)


def _check(facts: RuleInputs) -> Finding | None:
    """Say so where the share of the input may be anything from below the gate to high.

    It is said instead of everything else.
    """
    sure = facts.certainty
    if sure is None or not _too_short(sure, input_known(facts)):
        return None
    may_be = {"the loader's start": input_wait(facts).start_s > 0, "waits for a CPU": _queued(sure)}
    left_out = [what for what, is_left in may_be.items() if is_left]
    aside = f", not counting {' and '.join(left_out)}" if left_out else ""
    known = input_known(facts) and sure.steps > 1
    took = [_TAKES(between=_between(sure), aside=aside)] if known else []
    fix, *others = [_RECORD_ALL] if _only_timed(facts, sure) else _fixes(facts, sure)
    return Finding(
        _RULE_ID,
        Severity.INFO,
        message=_why(facts, sure),
        more=[*took, _INPUT_UNKNOWN if sure.steps >= MIN_VERDICT_STEPS else _UNKNOWN],
        evidence=_evidence(facts, sure),
        fix=fix,
        fix_more=others,
        how_to_check=(
            "Compare the mean step with that of the run that recorded every step. If it is much "
            "shorter there, this finding is wrong."
            if _only_timed(facts, sure)
            else "Record that many steps. If they are still too few, the number in this finding "
            "was wrong."
        ),
    )


def _fixes(facts: RuleInputs, sure: Certainty) -> list[str]:
    """More steps; of a training that failed, the error first."""
    steps = count(_needed(sure))
    if facts.failed:
        return [_ERROR(failed=facts.failed), _NEEDS(steps=steps)]
    return [_TRAIN(steps=steps)]


def _only_timed(facts: RuleInputs, sure: Certainty) -> bool:
    """Tell whether time that no recorded step shows makes the share of the input unknown.

    It does so however many steps there are.
    """
    return (
        sure.steps >= MIN_VERDICT_STEPS
        and facts.step.stages.get(UNATTRIBUTED, 0.0) >= MIN_WAIT_SHARE * facts.step.mean_s
    )


def _why(facts: RuleInputs, sure: Certainty) -> str:
    if _only_timed(facts, sure):
        return _ONLY_TIMED(longer=facts.step.stages[UNATTRIBUTED], mean=facts.step.mean_s)
    return (_FEW if sure.steps < MIN_VERDICT_STEPS else _VARY)(steps=_counted(facts, sure))


def _queued(sure: Certainty) -> bool:
    """Tell whether waiting for a CPU makes a difference that is seen."""
    return any(
        f"{100 * own:.0f}" != f"{100 * whole:.0f}"
        for own, whole in zip(sure.own, (sure.low, sure.high), strict=True)
    )


def _counted(facts: RuleInputs, sure: Certainty) -> str:
    """Return ``1 step``, ``7 steps after 3 of warm-up``.

    Steps that were only counted are no warm-up, and how many of them there were is not said.
    """
    number, pace = sure.steps, facts.throughput
    warm_up = pace.steps - number if pace.steps == pace.steps_in_detail else 0
    return counted(number, "step") + (f" after {count(warm_up)} of warm-up" if warm_up > 0 else "")


def _too_short(sure: Certainty, loader: bool) -> bool:
    return sure.steps < MIN_VERDICT_STEPS or (
        loader and sure.own[0] < MIN_WAIT_SHARE and sure.own[1] >= HIGH_SHARE
    )


def _evidence(facts: RuleInputs, sure: Certainty) -> list[Evidence]:
    found = [
        Evidence("steps", "steps counted", sure.steps, "steps"),
        Evidence("mean_step_s", "mean step so far", facts.step.mean_s, "s"),
    ]
    if not input_known(facts) or sure.steps < 2:
        return found
    what = "input, share of the step so far"
    kind, aside = "input_share_end", ""
    if sure.own != (sure.low, sure.high):
        kind, aside = "input_share_without_cpu_waits_end", ", not counting waits for a CPU"
    ends = zip(("lower", "upper"), sure.own, strict=True)
    shares = [
        Evidence(kind, f"{what}{aside}, {end} end of its 95 % interval", value, SHARE, end)
        for end, value in ends
    ]
    return [*found, Evidence("input_share", what, steady_share(facts), SHARE), *shares]


def _needed(sure: Certainty) -> int:
    """Return how many steps give an interval that does not reach from the gate to a high share.

    It narrows with the square root of their number.
    """
    wider = (sure.own[1] - sure.own[0]) / (HIGH_SHARE - MIN_WAIT_SHARE)
    return (
        max(2 * MIN_VERDICT_STEPS, math.ceil(sure.steps * wider**2))
        if sure.steps >= MIN_VERDICT_STEPS
        else 2 * MIN_VERDICT_STEPS
    )


def _between(sure: Certainty) -> str:
    """Return the interval in words: ``28 to 51 % of the step (95 % interval)``.

    Of less than 0.5 %, only the upper end: ``at most 0.4 %``.
    """
    low, high = sure.own
    if round(100 * high):
        ends = share_range(low, high)
    else:
        most = percent(high)  # or "<0.1 %"
        ends = most if most.startswith("<") else f"at most {most}"
    return f"{ends} of the step (95 % interval)"


def _change(facts: RuleInputs) -> Refused:
    """Refuse to predict: the recording is too short."""
    return Refused(
        "too_short",
        "The recording is too short to predict from.",
    )


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    of_input=True,
    asks_for_more=True,
    states=Statement.UNKNOWN,
    names_error=True,
)
