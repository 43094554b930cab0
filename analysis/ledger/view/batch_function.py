"""The function of the program that makes a batch in the training's own thread."""

from feedline.analysis.formatting import seconds, share
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.view.input_wait import MIN_WAIT_SHARE

HOW_TO_CHECK = (
    "Use one batch, made before the loop, in every step. If the step is no faster, "
    "this finding is wrong."
)


#: A function that has a CPU, or wants one, less of its time than this waits for its batch rather
#: than makes it.
_MIN_WORKING_SHARE = 0.5


def who(facts: RuleInputs) -> str:
    """Return ``get_batch (train.py:116)``."""
    return " and ".join(facts.making.functions) if facts.making else "the program's stage 'input'"


def _waits(facts: RuleInputs) -> bool:
    return facts.making is not None and facts.making.working_share < _MIN_WORKING_SHARE


def _does(facts: RuleInputs) -> str:
    verb = ("wait" if _waits(facts) else "make") + (
        "" if facts.making and len(facts.making.functions) > 1 else "s"
    )
    return f"{verb} for each batch" if _waits(facts) else f"{verb} each batch"


def unsure(facts: RuleInputs) -> str:
    """Say what is known where other parts of the step may be input as well.

    The function itself takes less than the gate.
    """
    took, other = facts.step.stages.get("input", 0.0), facts.step.stages.get("other", 0.0)
    mean = facts.step.mean_s
    return (
        f"the known part of the input takes {seconds(took)} of each {seconds(mean)} step "
        f"({share(took / mean)}): {who(facts)} "
        f"{_does(facts)}; another {seconds(other)} ({share(other / mean)}) belong to no stage and "
        f"may be input as well"
    )


def sure_of_the_rest(facts: RuleInputs) -> bool:
    """Tell whether no other part of the step can be input.

    Such a part is what made the arrays that a function makes tensors of.
    """
    little = facts.step.stages.get("other", 0.0) < MIN_WAIT_SHARE * facts.step.mean_s
    return facts.making is None or little or (facts.unseen is not None and facts.unseen.resident)
