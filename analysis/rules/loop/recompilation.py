"""torch.compile compiles again and again.

Each new shape, type or value that it did not expect costs a compilation.
"""

from feedline.analysis.formatting import counted, seconds, share
from feedline.analysis.ledger.change import Refused
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import SHARE, Evidence, Finding, Severity
from feedline.analysis.ledger.rule import Rule

RULE_ID = "recompilation"
_STAGE = "compile"

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
        message=f"torch.compile compiled again in {again} of "
        f"{counted(steps, 'step')}{', none of them in the last third' if over else ''}: "
        f"{share(row.s / step.mean_s)} of the {seconds(step.mean_s)} step",
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
        fix="Run with TORCH_LOGS=recompiles, which prints the reason. For sizes that change, pad "
        "to a few lengths or compile with "
        "dynamic=True.",
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
