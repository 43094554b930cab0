"""torch.compile compiles again and again.

Each new shape, type or value that it did not expect costs a compilation.
"""

from feedline.analysis.formatting import counted
from feedline.analysis.ledger.change import Refused
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import SHARE, Evidence, Finding, Severity
from feedline.analysis.ledger.rule import Rule
from feedline.analysis.sentences import COUNT, PART, PERCENT, Sentence

RULE_ID = "recompilation"
_STAGE = "compile"

_SAYS = Sentence(
    "torch.compile compiled again in {again} of {steps}, which takes {part} of the step time",
    again=COUNT,
    steps=PART,
    part=PERCENT,
)
_OVER_NOW = "none of these steps is in the last third of the run"
_LOGS = "Run with TORCH_LOGS=recompiles, which prints the reason."
_SIZES = "For sizes that change, pad to a few lengths or compile with dynamic=True."

_MIN_SHARE = 0.05  # of the mean step
#: Steps after the first in which something is compiled: a late backward or an optimizer's first
#: update makes one or two.
_MIN_STEPS = 3
# of what it takes in the first third of the steps: with less in the last third, it is over
_OVER = 0.05


def check(facts: RuleInputs) -> Finding | None:
    """Count the steps after the first in which a graph is compiled."""
    step, row = facts.step, facts.ledger.step.row(_STAGE) if facts.ledger else None
    if row is None or row.steps is None or row.s < _MIN_SHARE * step.mean_s:
        return None
    steps = facts.throughput.steps_in_detail - 1
    again = round(row.steps * steps)
    if again < _MIN_STEPS:
        return None
    over = row.trend is not None and row.trend < _OVER
    return Finding(
        RULE_ID,
        Severity.of(row.s / step.mean_s),
        message=_SAYS(again=again, steps=counted(steps, "step"), part=row.s / step.mean_s),
        more=[_OVER_NOW] if over else [],
        evidence=[
            Evidence("compile_s", "compiling, per step", row.s, "s"),
            Evidence("compile_share", "share of the step", row.s / step.mean_s, SHARE),
            Evidence(
                "compile_steps",
                "steps after the first in which something was compiled",
                float(again),
                "1",
            ),
            Evidence("compile_once_s", "compiling, per such step", row.s / row.steps, "s"),
        ],
        fix=_LOGS,
        fix_more=[_SIZES],
        how_to_check="Train on batches of one shape. If it still compiles after the first steps, "
        "this finding is wrong.",
        cost_s=row.s,
    )


def change(facts: RuleInputs) -> Refused:
    """Refuse to predict.

    Graphs that fit several shapes may run slower than those for one.
    """
    return Refused(
        "recompilation", "How fast the training runs with graphs for several shapes is unknown."
    )


RULE: Rule[RuleInputs] = Rule(
    RULE_ID,
    check,
    change,
    claims=("compile",),
    bound="Bound by compilation",
    lifts=frozenset({"step"}),
    supposing="if nothing were compiled after the first step",
)
