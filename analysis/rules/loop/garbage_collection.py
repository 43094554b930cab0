"""Python's garbage collections take part of the step.

A full collection looks at every object of the program, so it takes long where there are many.
"""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import (
    SHARE,
    Change,
    Evidence,
    Factor,
    Finding,
    Refused,
    Severity,
)
from feedline.analysis.ledger.rule import LESS_TO_COMPUTE, Rule
from feedline.analysis.measure.step_model import GarbageCollection
from feedline.analysis.text.formatting import counted, seconds
from feedline.analysis.text.sentences import PART, PERCENT, TIME, Sentence

_RULE_ID = "garbage_collection"

_SAYS = Sentence(
    "Python's garbage collection takes {part} of the step time{how_often}",
    part=PERCENT,
    how_often=PART,
)
_CALLED = Sentence(
    "calls to gc.collect() take {part} of the step time{how_often}",
    part=PERCENT,
    how_often=PART,
)
_FULL = Sentence(
    "{part} of that are full collections, which look at every object of the program", part=PERCENT
)
_LONGEST = Sentence("the longest takes {longest}", longest=TIME)
_FREEZE = "Call gc.freeze() after set-up: collections then skip the objects made before."
_TOGETHER = "Call gc.disable(), and gc.collect() every few hundred steps, on all ranks together."
_REMOVE = "Call gc.collect() rarely, or not at all: Python collects by itself."
_RARELY = "If memory grows without it, call it every few hundred steps, on all ranks together."

_MIN_SHARE = 0.05  # of the mean step
_MIN_STEPS = 2  # with a collection of 1 ms or more: one says nothing of how often they come
_MOSTLY = 0.5
_WAIT = "wait"


def _check(facts: RuleInputs) -> Finding | None:
    """Say what collections take, how often they come, and who asks for them."""
    garbage, mean_s = facts.step.garbage, facts.step.mean_s
    cost_s = _cost_s(garbage)
    if garbage is None or cost_s < _MIN_SHARE * mean_s:
        return None
    if 0 < garbage.steps_share * facts.throughput.steps_in_detail < _MIN_STEPS:
        return None
    called = garbage.called_share >= _MOSTLY
    fix, *others = _fixes(garbage)
    return Finding(
        _RULE_ID,
        Severity.of(cost_s / mean_s),
        message=(_CALLED if called else _SAYS)(part=cost_s / mean_s, how_often=_often(garbage)),
        more=_more(garbage),
        evidence=[
            Evidence("garbage_s", "garbage collection, per step", cost_s, "s"),
            Evidence("garbage_share", "share of the step", cost_s / mean_s, SHARE),
            *_once(garbage),
            Evidence("longest_s", "the longest collection", garbage.longest_s, "s"),
            *_regularly(garbage),
            Evidence(
                "collecting_steps",
                "share of the steps with a collection of 1 ms or more",
                garbage.steps_share,
                SHARE,
            ),
            Evidence("full_share", "of it, full collections", garbage.full_share, SHARE),
            Evidence("called_share", "of it, calls of gc.collect", garbage.called_share, SHARE),
        ],
        fix=fix,
        fix_more=others,
        place=garbage.called_at if called else "",
        how_to_check="Train without the call for some hundred steps."
        " If the steps take as long, this finding is wrong."
        if called
        else "Call gc.disable() before training for some hundred steps."
        " If the steps take as long, this finding is wrong.",
        cost_s=cost_s,
    )


def _fixes(garbage: GarbageCollection) -> list[str]:
    """Return what to do, the best first.

    Objects that each step makes anew cannot be frozen, and those of the set-up only once.
    """
    if garbage.called_share >= _MOSTLY:
        return [_REMOVE, _RARELY]
    helps = garbage.full_share >= _MOSTLY and not garbage.frozen
    return [_FREEZE, _TOGETHER] if helps else [_TOGETHER]


def _cost_s(garbage: GarbageCollection | None) -> float:
    """Return what collections take of the step, without those while it waits for a batch."""
    if garbage is None:
        return 0.0
    return sum(seconds for stage, seconds in garbage.stages.items() if stage != _WAIT)


def _often(garbage: GarbageCollection) -> str:
    """Return ``: 41.0 ms about every 5 steps``; empty: no single collection takes a millisecond."""
    if not garbage.steps_share:
        return ""
    every = garbage.every_steps or round(1 / garbage.steps_share)
    about = "" if garbage.every_steps else "about "
    when = "in each step" if every == 1 else f"{about}every {counted(every, 'step')}"
    return f": {seconds(_once(garbage)[0].value)} {when}"


def _once(garbage: GarbageCollection) -> list[Evidence]:
    """Return how long collections take in a step that has one of 1 ms or more."""
    if not garbage.steps_share:
        return []
    what = "garbage collection, per step with one of 1 ms or more"
    return [Evidence("garbage_once_s", what, _cost_s(garbage) / garbage.steps_share, "s")]


def _regularly(garbage: GarbageCollection) -> list[Evidence]:
    """Return how far apart these steps are; nothing where that varies."""
    if garbage.every_steps is None:
        return []
    what = "steps from one of them to the next"
    return [Evidence("collecting_every", what, float(garbage.every_steps), "steps")]


def _more(garbage: GarbageCollection) -> list[str]:
    full = [_FULL(part=garbage.full_share)] if garbage.full_share >= _MOSTLY else []
    return [*full, *([_LONGEST(longest=garbage.longest_s)] if garbage.longest_s else [])]


def _change(facts: RuleInputs) -> Change | Refused:
    """Collect nothing while the steps run."""
    garbage, stages = facts.step.garbage, facts.step.stages
    if garbage is None:
        return Refused("garbage", "No garbage collection was recorded.")
    return Change(
        stages={
            stage: Factor(1 - seconds / stages[stage], 1.0)
            for stage, seconds in garbage.stages.items()
            if stage != _WAIT and stages.get(stage)
        }
    )


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    claims=("*/gc",),
    bound="Bound by garbage collection",
    lifts=LESS_TO_COMPUTE,
    supposing="if nothing were collected while steps run",
    action="collect garbage less often",
)
