"""Evaluation, rollouts or generation, which lie outside the steps, take much of the run."""

from collections.abc import Sequence

from feedline.analysis.ledger.calls_per_step import PER_EVALUATION
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import SHARE, Evidence, Finding, Refused, Severity, measured
from feedline.analysis.ledger.known_call import CallFound, known_call
from feedline.analysis.ledger.rule import Rule
from feedline.analysis.ledger.view.own_functions import (
    NAMED,
    NAMED_SHARE,
    HotLine,
    hottest_of_evaluation,
    parts,
)
from feedline.analysis.ledger.view.slow_code import enough, reported
from feedline.analysis.measure.code_places import EVALUATION
from feedline.analysis.measure.code_tree import MAIN
from feedline.analysis.measure.step_model import OwnFunction, StepSummary
from feedline.analysis.text.formatting import counted, seconds
from feedline.analysis.text.sentences import NAME, PART, PERCENT, TIME, Sentence

_RULE_ID = "evaluation_time"

_SAYS = Sentence(
    "evaluation, rollouts or generation take {part} of the time{how_often}",
    part=PERCENT,
    how_often=PART,
)
_OF_LOADER = Sentence(
    "evaluation takes {part} of the time{how_often}", part=PERCENT, how_often=PART
)
_ARE = "these are forward passes outside the steps, without backward passes"
_STEPS = Sentence("they take {took} in total, all steps together {steps}", took=TIME, steps=TIME)
_MOSTLY = Sentence("{part} of that is spent {where}", part=PERCENT, where=NAME)
_CALL = Sentence("{part} of that is spent in a call at {place}", part=PERCENT, place=NAME)
_LESS_OFTEN = "Run evaluation less often, on fewer batches, or in larger ones."
_GENERATION = "Generation: do it less often, or for several samples in one batch."
#: Without a loader it may be a rollout, which the training learns from, so not: less often.
_LARGER = "Call the model on larger batches: more environments, prompts or samples at once."
_OTHERS = [
    "Rollouts: step the environments in processes of their own.",
    "Evaluation or generation: do it less often, or with fewer samples.",
]

_ALONE = Sentence("{others} not evaluate meanwhile", others=PART)
#: What a single rank does, all others wait for.
_ON_EACH = "Give each rank a part of it, and add up the results with all_reduce."

#: Of the time of steps and evaluation together.
_MIN_SHARE = 0.25
#: From here on more goes to it than to the steps, and no cause inside a step is worth as much.
_MOST_OF_IT = 0.5
#: Of evaluation: a call that is known to be slow and takes this much of it is told.
_MOST_OF_CALL = 1 / 3


def _check(facts: RuleInputs) -> Finding | None:
    """Say how much, and what it does besides calling the model."""
    step = facts.step
    steps_s = facts.all_steps_s
    whole_s = steps_s + step.evaluating_s
    if step.evaluating_s < _MIN_SHARE * whole_s or whole_s <= 0:
        return None
    part = step.evaluating_s / whole_s
    own = step.evaluation_code
    named = (
        [one for one in own.functions if one.s >= NAMED_SHARE * step.evaluating_s][:NAMED]
        if own is not None
        else []
    )
    known = _known(facts)
    line = hottest_of_evaluation(facts) if known is None else None
    idle = facts.not_evaluating
    saved_s = step.evaluating_s * (known[1] if known else idle / (idle + 1) if idle else 1.0)
    fixes = [_LESS_OFTEN, _GENERATION] if step.evaluation_loads else [_LARGER, *_OTHERS]
    fixes = [_ON_EACH, *fixes] if idle else fixes
    return Finding(
        _RULE_ID,
        _weight(part, saved_s / whole_s, bool(known or idle)),
        message=(_OF_LOADER if step.evaluation_loads else _SAYS)(part=part, how_often=_often(step)),
        more=[
            *_where(known, line),
            *([_ALONE(others=_others(idle))] if idle else []),
            _ARE,
            _STEPS(took=step.evaluating_s, steps=steps_s),
            *parts(named, " in total, outside the model"),
        ],
        evidence=[
            *_evidence(step, steps_s, named, known, line),
            *measured(
                [("not_evaluating", "other ranks, which do not evaluate", idle or None, "ranks")]
            ),
        ],
        fix=f"{known[0].call.fix}." if known else fixes[0],
        fix_more=fixes if known else fixes[1:],
        place=f"{known[0].file}:{known[0].line}" if known else step.evaluation_place,
        how_to_check="Time this code with time.perf_counter() over a run. If it takes much less "
        "than this time, this finding is wrong.",
        outside_s=saved_s,
    )


def _weight(part: float, saved: float, avoidable: bool) -> Severity:
    """Return how much it matters: less than half of the time is told if some of it can be spared.

    Args:
        part: of the time that it takes, from 0 to 1.
        saved: of the time that its fix spares.
    """
    if part >= _MOST_OF_IT:
        return Severity.HIGH
    return Severity.of(saved) if avoidable else Severity.INFO


def _others(idle: int) -> str:
    return "the other rank does" if idle == 1 else f"the other {idle} ranks do"


def _evidence(
    step: StepSummary,
    steps_s: float,
    named: Sequence[OwnFunction],
    known: tuple[CallFound, float] | None,
    line: HotLine | None,
) -> list[Evidence]:
    return [
        Evidence(
            "evaluation_s",
            "evaluation, rollouts or generation, in total",
            step.evaluating_s,
            "s",
        ),
        Evidence("steps_s", "all steps, in total", steps_s, "s"),
        Evidence(
            "evaluation_share",
            "evaluation, rollouts or generation, share of the time of steps and evaluation",
            step.evaluating_s / (steps_s + step.evaluating_s),
            SHARE,
        ),
        *measured(
            [
                ("evaluation_once_s", "one of them", _once_s(step), "s"),
                (
                    "evaluation_period",
                    "steps from one to the next",
                    step.evaluation_period,
                    "steps",
                ),
            ]
        ),
        *(Evidence("function_s", f"{one.name}, in total", one.s, "s", one.name) for one in named),
        *([reported(known[0].call, known[1], "evaluation")] if known else []),
        *(_spent(line) if line is not None else []),
    ]


def _known(facts: RuleInputs) -> tuple[CallFound, float] | None:
    """Return the known slow call that takes most of it, and its share (0 to 1); None: there is none."""
    code = facts.code
    tree = code.places.get((MAIN, EVALUATION)) if code is not None else None
    if code is None or tree is None:
        return None
    found = known_call(tree.inside, PER_EVALUATION, code.source, _MOST_OF_CALL)
    if found is None or not enough(found.seconds, tree.weight):
        return None
    return found, found.seconds / tree.weight.seconds


def _where(known: tuple[CallFound, float] | None, line: HotLine | None) -> list[str]:
    """Return what takes most of it, and at which line."""
    if known is not None:
        found, part = known
        return [_CALL(part=part, place=f"{found.file}:{found.line}"), found.call.says]
    return [_MOSTLY(part=line.share, where=line.where)] if line is not None else []


def _spent(line: HotLine) -> list[Evidence]:
    what = f"spent at {line.place}, share of evaluation"
    return [
        Evidence("line_share", what, line.share, SHARE, line.place),
        Evidence("line_share_end", "lower end of its 95 % interval", line.low, SHARE, "lower"),
    ]


def _once_s(step: StepSummary) -> float | None:
    return step.evaluating_s / step.evaluations if step.evaluations else None


def _often(step: StepSummary) -> str:
    """Return ``: 92.1 ms every 5 steps``; without a period what they take in total."""
    once_s = _once_s(step)
    if once_s is None or not step.evaluation_period:
        return f", {seconds(step.evaluating_s)} in total"
    every = round(step.evaluation_period)
    when = "in each step" if every == 1 else f"every {counted(every, 'step')}"
    return f": {seconds(once_s)} {when}"


def _change(facts: RuleInputs) -> Refused:
    """Refuse to predict: the throughput of the steps stays the same."""
    return Refused("evaluation", "The steps themselves do not get faster.")


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    bound="Bound by inference",
    lifts=frozenset(),
    in_part=False,
    outside_steps=True,
    action="spend less on inference",
)
