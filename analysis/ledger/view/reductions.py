"""Whether what the loop reduces over all ranks are the gradients, and in how many calls."""

from feedline.analysis.ledger.calls_per_step import AFTER_BACKWARD, ONE_BY_ONE, REDUCED
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.known_call import KnownCall

_SMALLEST_BYTES = 2  # of a gradient's element
_FEW = 2.5  # calls in a step: more are one for each tensor or so


def as_reduced(facts: RuleInputs, call: KnownCall) -> KnownCall:
    """Return a known call with what is true of gradients, if it reduces these; else the call."""
    calls = _of_gradients(facts) if call is REDUCED else 0.0
    if not calls:
        return call
    return ONE_BY_ONE if calls > _FEW else AFTER_BACKWARD


def _of_gradients(facts: RuleInputs) -> float:
    """Return the calls per step that reduce gradients outside of the backward pass; 0.0: none do.

    All values that the loop reduces are rarely as many as the parameters; where a wrapper reduces
    gradients, the backward pass is seen to call it.
    """
    comm, updated, steps = facts.comm, facts.updated, facts.throughput.steps
    if comm is None or updated is None or not steps:
        return 0.0
    if any(kind.phase == "backward" for kind in facts.exposed):
        return 0.0
    kinds = [kind for kind in comm.collectives if kind.name == "all_reduce"]
    nbytes = sum(kind.bytes * kind.count for kind in kinds) / steps
    if nbytes < _SMALLEST_BYTES * updated.elements:
        return 0.0
    return sum(kind.count for kind in kinds) / steps
