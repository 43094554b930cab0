"""A stage takes ten times what its bytes or pixels should, so something else takes the time."""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import Change, Evidence, Finding, Refused, Severity, measured
from feedline.analysis.ledger.rule import CHEAPER, Rule, Time
from feedline.analysis.ledger.view.expected import KERNEL, Work
from feedline.analysis.ledger.view.input_wait import severity
from feedline.analysis.ledger.view.slow_code import making_line
from feedline.analysis.ledger.view.slow_stage import UNKNOWN_CALL, UNKNOWN_CAUSE, Why, slowest_stage
from feedline.analysis.text.sentences import PART, TIME, Sentence

_RULE_ID = "slow_for_its_bytes"

_SAYS = Sentence(
    "{stage} takes {took} per {per}, and should take less than {should}{how}",
    stage=PART,
    took=TIME,
    per=PART,
    should=TIME,
    how=PART,
)
_CAUSED = Sentence(
    "{stage} takes {took} per {per}: {why}", stage=PART, took=TIME, per=PART, why=PART
)
_SHOULD = Sentence("it should take less than {should}{how}", should=TIME, how=PART)
#: Stages of what the program calls for a sample; others are at no line of it.
_OF_PROGRAM = ("read", "decode", KERNEL)
_BY_BOTH = "transport"  # what its row of the step has is the main process's part
_TASK = Sentence("that is {task}", task=PART)


def _check(facts: RuleInputs) -> Finding | None:
    """Compare every stage with what it handles."""
    found = slowest_stage(facts)
    if found is None:
        return None
    work, cause = found
    weight = severity(facts, work.lost_s)
    if weight is Severity.INFO:
        return None
    message, more = _says(work, cause)
    return Finding(
        _RULE_ID,
        weight,
        message=message,
        more=more,
        evidence=_evidence(work, cause),
        fix=cause.fix,
        fix_more=cause.fix_more,
        place=cause.place or (making_line(facts) if work.stage in _OF_PROGRAM else ""),
        how_to_check=cause.how_to_check,
        cost_s=work.lost_s + cause.also_s,
        claims=[f"sample/{work.stage}", work.stage],
    )


def _says(work: Work, cause: Why) -> tuple[str, list[str]]:
    """Return what takes the time and its cause, where it is known; and more."""
    took, task = work.cost.wall_s, _TASK(task=work.task)
    if not cause.more or cause.more[0] == UNKNOWN_CAUSE:
        said = _SAYS(stage=work.name, took=took, per=work.per, should=work.should_s, how=work.how)
        return said, [task, *cause.more]
    why, *others = cause.more
    per = f"{work.per} in worker and main process" if work.stage == _BY_BOTH else work.per
    said = _CAUSED(stage=work.name, took=took, per=per, why=why)
    return said, [_SHOULD(should=work.should_s, how=work.how), task, *others]


def _change(facts: RuleInputs) -> Change | Refused:
    """Return the change of the cause."""
    found = slowest_stage(facts)
    return found[1].change if found else UNKNOWN_CALL


def _evidence(work: Work, cause: Why) -> list[Evidence]:
    cost = work.cost
    found = [
        ("cpu_s", "of that on a CPU", cost.cpu_s, "s"),
        ("runqueue_s", "of that waiting for a CPU", cost.runqueue_s, "s"),
        ("blocked_s", "of that blocked", cost.blocked_s, "s"),
        ("bytes", f"bytes per {work.per}", cost.bytes, "B"),
        ("expected_s", "expected at most", work.should_s, "s"),
    ]
    return [
        Evidence("wall_s", f"{work.name} per {work.per}", cost.wall_s, "s", work.stage),
        *measured(found),
        *cause.evidence,
    ]


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    claims=("sample",),
    lifts=CHEAPER | {"step", "gpu"},
    time=Time.IDLE,
    of_input=True,
    action="find what slows this stage",
)
