"""A function of the program makes each batch in the training's own thread, while the model waits."""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import SHARE, Evidence, Finding, Refused, Severity
from feedline.analysis.ledger.known_call import CallFound
from feedline.analysis.ledger.rule import Rule, Statement
from feedline.analysis.ledger.view import cpus
from feedline.analysis.ledger.view.handover import receiving_s
from feedline.analysis.ledger.view.input_wait import MIN_WAIT_SHARE
from feedline.analysis.ledger.view.loop_code import (
    HOW_TO_CHECK,
    batch_maker,
    does,
    maker_share,
    names,
    only_waits,
    places,
)
from feedline.analysis.ledger.view.slow_code import reported
from feedline.analysis.text.formatting import sentence
from feedline.analysis.text.sentences import PART, TIME, Sentence

_RULE_ID = "made_in_step"

_ALL = 0.995  # of a share that says nothing as an upper bound

_SAYS = Sentence(
    "{functions} {does} in the main thread: {took} per step", functions=PART, does=PART, took=TIME
)
_REQUEST = "Request the next batch before calling the model on this one."
_WAITS_FOR = "See what the function waits for: a queue, a file, a lock."
_FEWER = "Make each batch with fewer and larger operations, such as one index for all samples."
_NO_THREAD = "A thread would not help, because the CPUs are busy."
_THREAD = (
    "Or make the next one while the model computes: in a ThreadPoolExecutor(max_workers=1) with a "
    "random generator of its own."
)
_WORKER = Sentence(
    "Or use a DataLoader with num_workers=1: receiving its batches takes about {receiving} per step.",
    receiving=TIME,
)
_PINNED = "Copy batches from pinned memory with non_blocking=True."


def check(facts: RuleInputs) -> Finding | None:
    """Name the function, and say how the next batch can be made while the model computes."""
    took = facts.step.stages.get("input", 0.0)
    weight = Severity.of(took / facts.step.mean_s) if facts.step.mean_s > 0 else Severity.INFO
    if weight is Severity.INFO:
        return None
    place, known = batch_maker(facts) or ("", None)
    fix, *others = _fixes(facts, took)
    more = [known.call.says] if known is not None else []
    if known is not None:
        fix, others = f"{known.call.fix}.", [fix, *others]
    return Finding(
        _RULE_ID,
        weight,
        message=_SAYS(functions=names(facts), does=does(facts), took=took),
        evidence=[*_evidence(facts, took), *_reported(facts, known)],
        fix=fix,
        fix_more=others,
        place=place or places(facts),
        more=more,
        how_to_check=HOW_TO_CHECK,
        cost_s=took,
        cost_kind=cpus.kind_of_work(facts),
    )


def _reported(facts: RuleInputs, known: CallFound | None) -> list[Evidence]:
    if known is None:
        return []
    return [reported(known.call, maker_share(facts, known), "making batches")]


def _evidence(facts: RuleInputs, took: float) -> list[Evidence]:
    found = [
        Evidence("making_s", "making batches per step", took, "s"),
        Evidence("other_s", "other per step", facts.step.stages.get("other", 0.0), "s"),
    ]
    if facts.certainty is not None and facts.certainty.steps > 1:
        ends = (("lower", facts.certainty.low), ("upper", facts.certainty.high))
        what = "share of the step, {} end of its 95 % interval"
        found += [
            Evidence("input_share_end", what.format(end), value, SHARE, end) for end, value in ends
        ]
    if not only_waits(facts) and not _full(facts, took):
        found += [
            Evidence(
                "receiving_s",
                "receiving batches from a worker per step, upper estimate",
                _receiving_s(facts),
                "s",
            )
        ]
    if facts.making is not None:
        found += [
            Evidence(
                "timed_steps",
                "steps in which the function was timed",
                float(facts.making.looked.sum()),
                "steps",
            )
        ]
        found += [Evidence("calls", "calls per step", facts.making.calls, "1")]
        if facts.making.working_share < _ALL:
            what = "computing or waiting for a CPU, share of the function's time, at most"
            found.append(Evidence("cpu_share", what, facts.making.working_share, SHARE))
    return found


def _fixes(facts: RuleInputs, took: float) -> list[str]:
    """Return what to do first, and the alternatives."""
    if only_waits(facts):
        return [_REQUEST, _WAITS_FOR]
    copied = facts.moved.get("copy")
    may_be_pageable = copied is None or copied.pageable > 0
    device = [_PINNED] if facts.step.stages.get("copy") and may_be_pageable else []
    if _full(facts, took):
        used = [f"{sentence(use)}." for use in cpus.use(facts)]
        return [_FEWER, *device, _NO_THREAD, *used]
    receiving = _receiving_s(facts)
    helps = took - receiving >= MIN_WAIT_SHARE * facts.step.mean_s
    return [_FEWER, _THREAD, *([_WORKER(receiving=receiving)] if helps else []), *device]


def _receiving_s(facts: RuleInputs) -> float:
    return receiving_s(facts).times(facts.making.calls if facts.making else 1.0).high


def _full(facts: RuleInputs, took: float) -> bool:
    """Tell whether no CPU is free on which another thread could make the batch meanwhile."""
    free = facts.cpus.free if facts.cpus is not None else None
    return free is not None and free * facts.step.mean_s < took


def _change(facts: RuleInputs) -> Refused:
    """Refuse to predict: there is no loader to replay."""
    return Refused(
        "no_loader",
        "Only a DataLoader can be replayed, and this program makes its own batches.",
    )


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    check,
    _change,
    claims=("input",),
    of_input=True,
    states=Statement.INPUT_IN_STEP,
    action="make batches in fewer calls",
)
