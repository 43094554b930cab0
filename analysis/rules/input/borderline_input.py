"""The input takes about as much of the step as the gate.

These steps cannot show which side it is on.
"""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import (
    NOTHING_TO_CHANGE,
    SHARE,
    Evidence,
    Finding,
    Refused,
    Severity,
)
from feedline.analysis.ledger.rule import EVERY_LIMIT, Rule, Statement
from feedline.analysis.ledger.view.enough_steps import INTERVAL, input_known
from feedline.analysis.ledger.view.input_wait import MIN_WAIT_SHARE, steady_share
from feedline.analysis.ledger.view.loop_code import says
from feedline.analysis.text.formatting import share
from feedline.analysis.text.sentences import PERCENT, Sentence

_RULE_ID = "borderline_input"

#: A share of which the whole interval lies below this is near the gate; of a wider one, which
#: reaches across the gate too, the verdict gives the interval (docs/rules/borderline_input.md).
_NEAR = 2 * MIN_WAIT_SHARE

_SAYS = Sentence(
    "the input takes {part} of each step, too close to 5 % to call it a bottleneck", part=PERCENT
)
_GATE = f"shares of {share(MIN_WAIT_SHARE)} or more count as a bottleneck"
_LOOK = "Look at the rest of the step first."


def check(facts: RuleInputs) -> Finding | None:
    """Say so where the interval of the share contains the gate.

    It is said in place of what is said above and below it.
    """
    sure, waiting, mean_s = facts.certainty, steady_share(facts), facts.step.mean_s
    if sure is None or not input_known(facts) or not sure.low < MIN_WAIT_SHARE <= sure.high < _NEAR:
        return None
    ends = (("lower", sure.low), ("upper", sure.high))
    return Finding(
        _RULE_ID,
        Severity.INFO,
        message=_SAYS(part=waiting),
        more=[
            *([] if facts.loader else [says(facts)]),
            INTERVAL(ends=(sure.low, sure.high)),
            _GATE,
        ],
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
        fix=_LOOK,
        how_to_check="Train on the same batch in every step. If the step gets much faster, this "
        "finding is wrong.",
        cost_s=waiting * mean_s,
    )


def _change(facts: RuleInputs) -> Refused:
    """Return why nothing is predicted: there is nothing to fix."""
    return NOTHING_TO_CHANGE


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    check,
    _change,
    lifts=EVERY_LIMIT,
    of_input=True,
    states=Statement.INPUT_BORDERLINE,
)
