"""The input takes about as much of the step as the gate.

These steps cannot show which side it is on.
"""

from feedline.analysis.formatting import seconds, share, share_range
from feedline.analysis.ledger.change import NOTHING_TO_CHANGE, Refused
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import SHARE, Evidence, Finding, Severity
from feedline.analysis.ledger.rule import EVERY_LIMIT, Rule, Statement
from feedline.analysis.ledger.view.batch_function import who
from feedline.analysis.ledger.view.enough_steps import input_known
from feedline.analysis.ledger.view.input_wait import MIN_WAIT_SHARE, steady_share

RULE_ID = "borderline_input"

#: A share of which the whole interval lies below this is near the gate; of a wider one, which
#: reaches across the gate too, the verdict gives the interval (docs/rules.md).
_NEAR = 2 * MIN_WAIT_SHARE


def check(facts: RuleInputs) -> Finding | None:
    """Say so where the interval of the share contains the gate.

    It is said in place of what is said above and below it.
    """
    sure, waiting, mean_s = facts.certainty, steady_share(facts), facts.step.mean_s
    if sure is None or not input_known(facts) or not sure.low < MIN_WAIT_SHARE <= sure.high < _NEAR:
        return None
    by = f" ({who(facts)})" if facts.loader is None else ""
    ends = (("lower", sure.low), ("upper", sure.high))
    return Finding(
        RULE_ID,
        Severity.INFO,
        message=f"the input{by} is on the borderline: it takes {share(waiting)} of the "
        f"{seconds(mean_s)} step (95 % interval: "
        f"{share_range(sure.low, sure.high)}); shares of {share(MIN_WAIT_SHARE)} or more count as "
        f"a bottleneck",
        evidence=[
            Evidence("input_share", "input, share of the step", waiting, SHARE),
            *(
                Evidence(
                    "input_share_end",
                    f"input, share of the step, {end} end of its 95 % interval",
                    at,
                    SHARE,
                    end,
                )
                for end, at in ends
            ),
            Evidence(
                "gate", "share at which the input counts as a bottleneck", MIN_WAIT_SHARE, SHARE
            ),
        ],
        fix=f"Look at the rest of the step first: the input takes {share(waiting)} of it.",
        how_to_check="Train on the same batch in every step. If the step gets much faster, this "
        "finding is wrong.",
        cost_s=waiting * mean_s,
    )


def change(facts: RuleInputs) -> Refused:
    """Return why nothing is predicted: there is nothing to fix."""
    return NOTHING_TO_CHANGE


RULE: Rule[RuleInputs] = Rule(
    RULE_ID,
    check,
    change,
    lifts=EVERY_LIMIT,
    of_input=True,
    states=Statement.INPUT_BORDERLINE,
)
