"""No update of parameters was seen.

The program trained nothing, or in a way that feedline cannot see.
"""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import Evidence, Finding, Refused, Severity
from feedline.analysis.ledger.rule import Rule, Statement
from feedline.analysis.ledger.view.enough_steps import REFUSED, only_infers
from feedline.analysis.text.formatting import counted
from feedline.analysis.text.sentences import PART, Sentence

_RULE_ID = "nothing_trained"

_SAYS = Sentence(
    "no training was seen: {batches} came from the loader, but no model call, backward pass or "
    "optimizer update followed",
    batches=PART,
)


def _check(facts: RuleInputs) -> Finding | None:
    """Say so where batches were made, and no model was called with them."""
    if facts.step.boundary != "loader" or only_infers(facts):
        return None
    batches = facts.throughput.steps
    return Finding(
        _RULE_ID,
        Severity.INFO,
        message=_SAYS(batches=counted(batches, "batch")),
        more=["what limits the training is unknown"],
        evidence=[
            Evidence("batches", "batches", batches, "batches"),
            Evidence("batch_s", "time per batch", facts.step.mean_s, "s"),
        ],
        fix="Let it train for a few dozen steps.",
        fix_more=["`feedline env` shows which calls feedline can see."],
        how_to_check="Check whether the program calls or updates a model. If it does, its hook "
        "failed (see 'Hooks that could not be "
        "attached' in the full report), and this finding is wrong.",
    )


def _change(facts: RuleInputs) -> Refused:
    """Refuse to predict: there is no training."""
    return Refused("nothing_trained", REFUSED)


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    of_input=True,
    asks_for_more=True,
    states=Statement.UNKNOWN,
)
