"""torch.compile compiles again and again.

Each new shape, type or value that it did not expect costs a compilation.
"""

from collections.abc import Sequence

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import SHARE, Evidence, Finding, Refused, Severity
from feedline.analysis.ledger.rule import LESS_TO_COMPUTE, Rule
from feedline.analysis.ledger.view.loop_code import line_of_stage
from feedline.analysis.measure.code_places import COMPILE
from feedline.analysis.measure.model import Recompiled
from feedline.analysis.text.formatting import counted
from feedline.analysis.text.sentences import COUNT, FUNCTION, NAME, PART, PERCENT, Sentence

_RULE_ID = "recompilation"

_SAYS = Sentence(
    "torch.compile compiled again in {again} of {steps}, which takes {part} of the step time",
    again=COUNT,
    steps=PART,
    part=PERCENT,
)
_BECAUSE = Sentence(
    "{function} is compiled again when {what} changes, which takes {part} of the step time",
    function=FUNCTION,
    what=NAME,
    part=PERCENT,
)
_STEPS = Sentence("in {again} of {steps} something was compiled", again=COUNT, steps=PART)
_CHANGES = Sentence(
    "{function} was compiled {times}: {what} changes{values}",
    function=FUNCTION,
    times=PART,
    what=NAME,
    values=PART,
)
_MOST = Sentence("{function} was compiled most often: {times}", function=FUNCTION, times=PART)
_GAVE_UP = Sentence(
    "{function} then reached torch's limit of recompilations and runs uncompiled", function=FUNCTION
)
_OVER_NOW = "none of these steps is in the last third of the run"
_LOGS = "Run with TORCH_LOGS=recompiles, which prints the reason."
_SIZES = "For sizes that change, pad to a few lengths or compile with dynamic=True."
_PAD = "Pad to a few lengths, or compile with dynamic=True."
_NO_NUMBERS = Sentence(
    "Pass {name} as a tensor, or keep it out of the compiled function.", name=NAME
)
#: What had changed, in words.
_WHAT = {
    "size": "the size of {name}",
    "rank": "the number of dimensions of {name}",
    "stride": "the memory layout of {name}",
    "dtype": "the dtype of {name}",
    "gradients": "whether gradients are computed",
    "number": "the number {name}",
}
_SHOWN = 4  # values

_MIN_SHARE = 0.05  # of the mean step
#: Steps after the first in which something is compiled: a late backward or an optimizer's first
#: update makes one or two.
_MIN_STEPS = 3
# of what it takes in the first third of the steps: with less in the last third, it is over
_OVER = 0.05


def _check(facts: RuleInputs) -> Finding | None:
    """Count the steps after the first in which a graph is compiled."""
    step, row = facts.step, facts.ledger.step.row(COMPILE) if facts.ledger else None
    if row is None or row.steps is None:
        return None
    over = row.trend is not None and row.trend < _OVER
    kept = _kept_share(facts, row.s)
    cost_s, steps = kept * row.s, facts.throughput.steps - 1
    again = round(kept * row.steps * steps)
    if again < _MIN_STEPS or cost_s < _MIN_SHARE * step.mean_s:
        return None
    first = _most_of_known_cause(facts.recompiled)
    most = first or next(iter(facts.recompiled), None)
    part, of = cost_s / step.mean_s, counted(steps, "step")
    message = (
        _BECAUSE(function=first.function, what=_changing(first), part=part)
        if first is not None
        else _SAYS(again=again, steps=of, part=part)
    )
    because = [_STEPS(again=again, steps=of), *_why(first)] if first is not None else _who(most)
    return Finding(
        _RULE_ID,
        Severity.of(part),
        message=message,
        more=[*because, *([_OVER_NOW] if over else [])],
        evidence=[
            Evidence("compile_s", "compiling, per step", cost_s, "s"),
            Evidence("compile_share", "share of the step", part, SHARE),
            Evidence(
                "compile_steps",
                "steps after the first in which something was compiled",
                float(again),
                "1",
            ),
            Evidence("compile_once_s", "compiling, per such step", row.s / row.steps, "s"),
        ],
        fix=_fix(first),
        fix_more=[_LOGS] if _fix(first) != _LOGS else [_SIZES],
        place=most.place if most is not None and most.place else line_of_stage(facts, COMPILE),
        how_to_check="Train on batches of one shape. If it still compiles after the first steps, "
        "this finding is wrong.",
        cost_s=cost_s,
    )


def _kept_share(facts: RuleInputs, row_s: float) -> float:
    """Return the true time of compiling over that of the mean step, at most 1.

    A long run forgets steps, but never its start, in which most is compiled. How long that took in
    all is known exactly.

    Args:
        row_s: of the mean step.
    """
    pace = facts.throughput
    if facts.compiling_s is None or pace.steps_in_detail >= pace.steps or not row_s:
        return 1.0
    return min(facts.compiling_s / (row_s * pace.steps), 1.0)


def _most_of_known_cause(functions: Sequence[Recompiled]) -> Recompiled | None:
    """Return the one compiled most often, if it is known what had changed."""
    most = [each for each in functions if each.times == functions[0].times]
    return next((each for each in most if each.kind in _WHAT), None)


def _who(function: Recompiled | None) -> list[str]:
    if function is None:
        return []
    return [_MOST(function=function.function, times=counted(function.times, "time"))]


def _changing(function: Recompiled) -> str:
    return _WHAT[function.kind].format(
        name=f"`{function.name}`" if function.name else "an argument"
    )


def _why(function: Recompiled) -> list[str]:
    values = ", ".join(f"{value:g}" for value in function.values[:_SHOWN])
    more = ", ..." if len(function.values) > _SHOWN else ""
    says = _CHANGES(
        function=function.function,
        times=counted(function.times, "time"),
        what=_changing(function),
        values=f" ({values}{more})" if values else "",
    )
    return [says, *([_GAVE_UP(function=function.function)] if function.gave_up else [])]


def _fix(function: Recompiled | None) -> str:
    if function is not None and function.kind == "size":
        return _PAD
    if function is not None and function.kind == "number" and function.name:
        return _NO_NUMBERS(name=function.name)
    return _LOGS


def _change(facts: RuleInputs) -> Refused:
    """Refuse to predict.

    Graphs that fit several shapes may run slower than those for one.
    """
    return Refused(
        "recompilation", "How fast the training runs with graphs for several shapes is unknown."
    )


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    claims=(COMPILE,),
    bound="Bound by compilation",
    lifts=LESS_TO_COMPUTE,
    supposing="if nothing were compiled after the first step",
    action="avoid recompiling",
)
