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


def who(run: RuleInputs) -> str:
    """Return ``get_batch (train.py:116)``."""
    return " and ".join(run.making.functions) if run.making else "the program's stage 'input'"


def _waits(run: RuleInputs) -> bool:
    return run.making is not None and run.making.working_share < _MIN_WORKING_SHARE


def _does(run: RuleInputs) -> str:
    verb = ("wait" if _waits(run) else "make") + (
        "" if run.making and len(run.making.functions) > 1 else "s"
    )
    return f"{verb} for each batch" if _waits(run) else f"{verb} each batch"


def unsure(run: RuleInputs) -> str:
    """Say what is known where other parts of the step may be input as well.

    The function itself takes less than the gate.
    """
    took, other = run.step.stages.get("input", 0.0), run.step.stages.get("other", 0.0)
    mean = run.step.mean_s
    return (
        f"the known part of the input takes {seconds(took)} of each {seconds(mean)} step "
        f"({share(took / mean)}): {who(run)} "
        f"{_does(run)}; another {seconds(other)} ({share(other / mean)}) belong to no stage and "
        f"may be input as well"
    )


def sure_of_the_rest(run: RuleInputs) -> bool:
    """Tell whether no other part of the step can be input.

    Such a part is what made the arrays that a function makes tensors of.
    """
    little = run.step.stages.get("other", 0.0) < MIN_WAIT_SHARE * run.step.mean_s
    return run.making is None or little or (run.unseen is not None and run.unseen.resident)
