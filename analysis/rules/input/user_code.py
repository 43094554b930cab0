"""A function of the program takes most of making a sample."""

from collections.abc import Iterator

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import (
    SHARE,
    Change,
    CostKind,
    Evidence,
    Finding,
    Refused,
    Severity,
)
from feedline.analysis.ledger.rule import CHEAPER, Effort, Rule
from feedline.analysis.ledger.view.cpus import kind_of_work, making_wait_s
from feedline.analysis.ledger.view.input_wait import severity
from feedline.analysis.ledger.view.own_functions import speeding_up
from feedline.analysis.ledger.view.slow_code import (
    CHUNKS,
    SlowCode,
    reported,
    slow_code,
    unpacked_per_byte,
)
from feedline.analysis.measure.code_places import COLLATE
from feedline.analysis.measure.code_tree import CodeNode
from feedline.analysis.text.formatting import nearly
from feedline.analysis.text.sentences import FUNCTION, NAME, NUMBER, PART, Sentence

_RULE_ID = "user_code"
_HALVED = 0.5
#: Of making a sample: a function that surely takes less is not worth its own finding.
_MIN_SHARE = 0.05
_NAMED = 3  # lines
_SAYS = Sentence(
    "{function} takes {part} of the time to make {what}", function=FUNCTION, part=PART, what=PART
)
_CHUNKS = Sentence("{times} times as many bytes are unpacked as are used", times=NUMBER)
_MOSTLY = Sentence("most of that is spent in {library}", library=NAME)
_CALLED = Sentence("it is called from {caller}", caller=NAME)
_FASTER = Sentence("Make {function} faster, or keep its results.", function=FUNCTION)
_ON_BATCH = Sentence(
    "Make {function} faster: use few operations on the whole batch.", function=FUNCTION
)
_ARRAYS = Sentence("Or work on whole arrays instead of single values.")
_REPLACED = Refused("replaced", "How long what replaces this call takes is not known.")
_NOT_SAMPLED = Refused("not_sampled", "The program's stacks were not sampled.")


def _check(facts: RuleInputs) -> Finding | None:
    """Name the function, and its line, that take most of the wait for batches."""
    slow = slow_code(facts)
    if slow is None or slow.low < _MIN_SHARE:
        return None
    cost_s = making_wait_s(facts) * _part(facts, slow)
    weight = severity(facts, cost_s)
    if weight is Severity.INFO:
        return None
    return Finding(
        _RULE_ID,
        weight,
        message=_SAYS(
            function=slow.name,
            part=nearly(slow.share),
            what="a batch" if slow.place == COLLATE else "a sample",
        ),
        more=_more(facts, slow),
        evidence=_evidence(facts, slow),
        fix=_fix(slow),
        fix_more=[] if slow.known else [_ARRAYS()],
        how_to_check=f"Have {slow.name} return the same result every time. If samples/s "
        "do not rise, this finding is wrong.",
        cost_s=cost_s,
        cost_kind=CostKind.ESTIMATED if slow.known else kind_of_work(facts),
        claims=slow.rows,
        place=slow.where,
        action=speeding_up(slow.name),
    )


def _part(facts: RuleInputs, slow: SlowCode) -> float:
    """Return the share (0 to 1) of making a sample that a fix can save.

    It is what the fix of a known call spares of that, if any.
    """
    if slow.known is None or facts.code is None:
        return slow.share
    part = min(slow.share, slow.known.seconds / facts.code.making.seconds)
    return part * (1 - (slow.known.call.left or 0.0))


def _fix(slow: SlowCode) -> str:
    if slow.known:
        return f"{slow.known.call.fix}."
    faster = _ON_BATCH if slow.place == COLLATE else _FASTER
    return faster(function=slow.name)


def _more(facts: RuleInputs, slow: SlowCode) -> list[str]:
    """Return what is known of the call, and who makes it."""
    library = slow.library if slow.has_line else ""
    times = unpacked_per_byte(facts) if slow.known and slow.known.call.name in CHUNKS else None
    return [
        *([slow.known.call.says] if slow.known else []),
        *([_CHUNKS(times=times)] if times else []),
        *([_MOSTLY(library=library)] if library else []),
        *([_CALLED(caller=slow.caller)] if slow.caller else []),
    ]


def _evidence(facts: RuleInputs, slow: SlowCode) -> list[Evidence]:
    code, what = facts.code, f"{slow.name}, share of making a sample"
    assert code is not None
    lines = [
        Evidence(
            "line_share",
            f"{slow.node.file}:{line}, share of making a sample",
            part * slow.node.seconds / code.making.seconds,
            SHARE,
            str(line),
        )
        for line, part in list(_lines_of(slow.node))[:_NAMED]
    ]
    source = (
        [reported(slow.known.call, slow.known.seconds / code.making.seconds, "making a sample")]
        if slow.known
        else []
    )
    return [
        Evidence("function_share", what, slow.share, SHARE),
        Evidence("function_share_end", f"{what}, lower end", slow.low, SHARE, "lower"),
        Evidence("function_share_end", f"{what}, upper end", slow.high, SHARE, "upper"),
        *lines,
        Evidence("samples", "samples of making batches", code.making.number, "1"),
        *source,
    ]


def _change(facts: RuleInputs) -> Change | Refused:
    """Halve the function's time; of a known call, leave what its fix leaves."""
    slow = slow_code(facts)
    if slow is None:
        return _NOT_SAMPLED
    left = _left(slow)
    return _REPLACED if left is None else _scaled(slow, left)


def _left(slow: SlowCode) -> float | None:
    """Return the share (0 to 1) of the function's time that is there after the fix; None: unknown."""
    if slow.known is None:
        return _HALVED
    left = slow.known.call.left
    return (
        None if left is None else max(0.0, 1 - slow.known.seconds * (1 - left) / slow.node.seconds)
    )


def _free(facts: RuleInputs) -> Change | Refused:
    """Let it take no time."""
    slow = slow_code(facts)
    return _NOT_SAMPLED if slow is None else _scaled(slow, 0.0)


def _scaled(slow: SlowCode, left: float) -> Change | Refused:
    stages = slow.scaled(left)
    return Change(stages=stages) if stages else _NOT_SAMPLED


def _lines_of(node: CodeNode) -> Iterator[tuple[int, float]]:
    """Lines of a function -> share of its time, longest first."""
    for line in sorted(node.lines, key=lambda at: -node.lines[at]):
        yield line, node.lines[line] / node.seconds


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    effort=Effort.CODE,
    claims=("sample/*/user",),
    lifts=CHEAPER,
    supposing="if this code took no time",
    predicting="if it took half the time",
    of_input=True,
    free=_free,
    action="speed up this function",
)
