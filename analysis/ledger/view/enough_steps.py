"""Whether a run trained, and whether its steps are enough to say what takes them."""

from feedline.analysis.formatting import share_range
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.view.input_wait import MIN_WAIT_SHARE

#: Steps that a verdict needs at least (docs/rules.md: measured on pieces of longer runs).
_FEWEST = 8


#: From here on a step is called highly input-bound (Severity.of).
_HIGH_SHARE = 0.20


def input_known(run: RuleInputs) -> bool:
    """Tell whether the input's share is known: from a loader, or from a stage of its own."""
    return run.loader is not None or "input" in run.step.stages


def enough_steps(run: RuleInputs) -> bool:
    """Tell whether there are as many steps as any verdict needs."""
    return run.certainty is None or run.certainty.steps >= _FEWEST


def unsure(run: RuleInputs) -> str:
    """Return the interval after a share, where it says that the share is uncertain.

    It reaches across the gate, or is wider than the step from the gate to a high share.
    """
    sure = run.certainty
    if (
        sure is None
        or (sure.low >= MIN_WAIT_SHARE or sure.high < MIN_WAIT_SHARE)
        and sure.high - sure.low <= _HIGH_SHARE - MIN_WAIT_SHARE
    ):
        return ""
    return f" (95 % interval: {share_range(sure.low, sure.high)})"


def maybe_below(run: RuleInputs) -> bool:
    """Tell whether the interval of the input's share also contains shares that do not count."""
    return run.certainty is not None and run.certainty.low < MIN_WAIT_SHARE


REFUSED = "No training was seen whose throughput could be predicted."


def only_infers(run: RuleInputs) -> bool:
    """Tell whether batches went into a model, and nothing was learned."""
    return run.step.boundary == "loader" and run.step.stages.get("forward", 0.0) > 0
