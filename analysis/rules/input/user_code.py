"""A function of the program takes most of making a sample."""

from feedline.analysis.formatting import share
from feedline.analysis.ledger.change import Change, Refused
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import SHARE, Evidence, Finding, Severity
from feedline.analysis.ledger.rule import CHEAPER, Effort, Rule
from feedline.analysis.ledger.view.cpus import making_wait_s
from feedline.analysis.ledger.view.input_wait import severity
from feedline.analysis.ledger.view.slow_code import SlowCode, lines_of, reported, slow_code

RULE_ID = "user_code"
_HALVED = 0.5
#: Of making a sample: a function that surely takes less is not worth its own finding.
_MIN_SHARE = 0.05
_NAMED = 3  # lines
_NOT_SAMPLED = Refused("not_sampled", "The program's stacks were not sampled.")


def check(facts: RuleInputs) -> Finding | None:
    """Name the function, and its line, that take most of the wait for batches."""
    slow = slow_code(facts)
    if slow is None or slow.low < _MIN_SHARE:
        return None
    cost_s = making_wait_s(facts) * slow.share
    weight = severity(facts, cost_s)
    if weight is Severity.INFO:
        return None
    return Finding(
        RULE_ID,
        weight,
        message=_says(slow),
        evidence=_evidence(facts, slow),
        fix=f"{slow.known.call.fix}." if slow.known else _generic(slow),
        how_to_check=f"Have {slow.node.function} return the same result every time. If samples/s "
        "do not rise, this finding is wrong.",
        cost_s=cost_s,
        claims=slow.rows,
        place=slow.where,
    )


def _says(slow: SlowCode) -> str:
    library = f", mostly in {slow.library}" if slow.library and slow.has_line else ""
    called = f", called from {slow.caller}" if slow.caller else ""
    what = f"{slow.node.function}() takes {share(slow.share)} of making a sample{library}{called}"
    return f"{what}. {slow.known.call.says}" if slow.known else what


def _generic(slow: SlowCode) -> str:
    what = f"line {slow.line} of {slow.node.file}" if slow.has_line else f"{slow.node.function}()"
    return (
        f"Make {what} faster: compute once and keep it, or work on whole arrays instead of single "
        f"values."
    )


def _evidence(facts: RuleInputs, slow: SlowCode) -> list[Evidence]:
    code, what = facts.code, f"{slow.node.function}, share of making a sample"
    assert code is not None
    lines = [
        Evidence(
            "line_share",
            f"{slow.node.file}:{line}, share of making a sample",
            part * slow.node.seconds / code.making.seconds,
            SHARE,
            str(line),
        )
        for line, part in list(lines_of(slow.node))[:_NAMED]
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


def _change(facts: RuleInputs, left: float) -> Change | Refused:
    slow = slow_code(facts)
    return Change(stages=slow.scaled(left)) if slow is not None else _NOT_SAMPLED


def change(facts: RuleInputs) -> Change | Refused:
    """The function takes half of its time."""
    return _change(facts, _HALVED)


def free(facts: RuleInputs) -> Change | Refused:
    """It takes none."""
    return _change(facts, 0.0)


RULE: Rule[RuleInputs] = Rule(
    RULE_ID,
    check,
    change,
    effort=Effort.CODE,
    claims=("sample/*/user",),
    lifts=CHEAPER,
    supposing="if this function took half of its time",
    of_input=True,
    free=free,
)
