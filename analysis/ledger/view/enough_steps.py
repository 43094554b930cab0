"""Whether a run trained, and whether its steps are enough to say what takes them."""

from feedline.analysis.formatting import share_range
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.view.input_wait import MIN_WAIT_SHARE

#: Steps that a verdict needs at least (docs/rules.md: measured on pieces of longer runs).
_FEWEST = 8


#: From here on a step is called highly input-bound (Severity.of).
_HIGH_SHARE = 0.20


def input_known(facts: RuleInputs) -> bool:
    """Tell whether the input's share is known: from a loader, or from a stage of its own."""
    return facts.loader is not None or "input" in facts.step.stages


def enough_steps(facts: RuleInputs) -> bool:
    """Tell whether there are as many steps as any verdict needs."""
    return facts.certainty is None or facts.certainty.steps >= _FEWEST


def unsure(facts: RuleInputs) -> str:
    """Return the interval after a share, where it says that the share is uncertain.

    It reaches across the gate, or is wider than the step from the gate to a high share.
    """
    sure = facts.certainty
    if (
        sure is None
        or (sure.low >= MIN_WAIT_SHARE or sure.high < MIN_WAIT_SHARE)
        and sure.high - sure.low <= _HIGH_SHARE - MIN_WAIT_SHARE
    ):
        return ""
    return f" (95 % interval: {share_range(sure.low, sure.high)})"


def maybe_below(facts: RuleInputs) -> bool:
    """Tell whether the interval of the input's share also contains shares that do not count."""
    return facts.certainty is not None and facts.certainty.low < MIN_WAIT_SHARE


REFUSED = "No training was seen whose throughput could be predicted."


def only_infers(facts: RuleInputs) -> bool:
    """Tell whether batches went into a model, and nothing was learned."""
    return facts.step.boundary == "loader" and facts.step.stages.get("forward", 0.0) > 0
