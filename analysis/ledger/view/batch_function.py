"""The function of the program that makes a batch in the training's own thread."""

import re

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.view.input_wait import MIN_WAIT_SHARE
from feedline.analysis.ledger.view.own_functions import name_of, place_of
from feedline.analysis.text.sentences import PERCENT, TIME, Sentence

HOW_TO_CHECK = (
    "Use one batch, made before the loop, in every step. If the step is no faster, "
    "this finding is wrong."
)


_KNOWN = Sentence(
    "the known part of the input takes {took} of each {step} step", took=TIME, step=TIME
)
_UNKNOWN = Sentence(
    "another {other} per step ({part}) belong to no stage and may be input as well",
    other=TIME,
    part=PERCENT,
)

#: A function that has a CPU, or wants one, less of its time than this waits for its batch rather
#: than makes it.
_MIN_WORKING_SHARE = 0.5

_TOLD = 0.01  # of the step

#: Functions of Python's own that give out what another thread or process has made.
_HANDS_OVER = (
    r"\bget(_nowait)? \(python3\.\d+/(queue|multiprocessing/queues)\.py"
    r"|\bresult \(python3\.\d+/concurrent/futures/"
    r"|\b(get|next) \(python3\.\d+/multiprocessing/pool\.py"
    r"|\brecv \(python3\.\d+/multiprocessing/connection\.py"
)


def _who(facts: RuleInputs) -> str:
    """Return ``get_batch (train.py:116)``."""
    return " and ".join(facts.making.functions) if facts.making else "the program's stage 'input'"


def names(facts: RuleInputs) -> str:
    """``get_batch``: the functions without their places."""
    return " and ".join(map(name_of, facts.making.functions)) if facts.making else _who(facts)


def places(facts: RuleInputs) -> str:
    """``train.py:116``: where these functions are."""
    of = map(place_of, facts.making.functions) if facts.making else ()
    return ", ".join(filter(None, of))


def makes(facts: RuleInputs) -> list[str]:
    """Return the same sentence where it is worth one.

    What takes next to nothing may only give out what is in memory, as a property does.
    """
    took = facts.step.stages.get("input", 0.0)
    return [says(facts)] if took >= _TOLD * facts.step.mean_s else []


def says(facts: RuleInputs) -> str:
    """``get_batch at train.py:116 makes each batch``."""
    functions = facts.making.functions if facts.making else ()
    at = " and ".join(
        " at ".join(filter(None, (name_of(function), place_of(function)))) for function in functions
    )
    return f"{at or _who(facts)} {does(facts)}"


def only_waits(facts: RuleInputs) -> bool:
    """Tell whether the function waits for a batch that another thread or process makes."""
    making = facts.making
    if making is None:
        return False
    handed = all(re.search(_HANDS_OVER, function) for function in making.functions)
    return handed or making.working_share < _MIN_WORKING_SHARE


def does(facts: RuleInputs) -> str:
    """Return what the function does: ``makes each batch``, ``waits for each batch``."""
    verb = ("wait" if only_waits(facts) else "make") + (
        "" if facts.making and len(facts.making.functions) > 1 else "s"
    )
    return f"{verb} for each batch" if only_waits(facts) else f"{verb} each batch"


def unsure(facts: RuleInputs) -> tuple[str, list[str]]:
    """Return what is known where the function takes less than the gate.

    Other parts of the step may be input as well. It is a message, and more.
    """
    took, other = facts.step.stages.get("input", 0.0), facts.step.stages.get("other", 0.0)
    mean = facts.step.mean_s
    more = [*makes(facts), _UNKNOWN(other=other, part=other / mean)]
    return _KNOWN(took=took, step=mean), more


def sure_of_the_rest(facts: RuleInputs) -> bool:
    """Tell whether no other part of the step can be input.

    Such a part is what made the arrays that a function makes tensors of.
    """
    little = facts.step.stages.get("other", 0.0) < MIN_WAIT_SHARE * facts.step.mean_s
    return facts.making is None or little or (facts.unseen is not None and facts.unseen.resident)
