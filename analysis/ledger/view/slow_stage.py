"""The stage that takes far longer than its bytes or pixels explain."""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.view.expected import Work, works
from feedline.analysis.ledger.view.storage import decoder_threads
from feedline.analysis.ledger.view.why_slow import Why, spins, waits_for_helpers, why


def slowest_stage(run: RuleInputs) -> tuple[Work, Why] | None:
    """Return the stage that costs most of those that are far off, and why.

    None: there is none.
    """
    slow = [(work, cause) for work in works(run) if (cause := why(run, work)) is not None]
    return max(slow, key=lambda both: both[0].lost_s) if slow else None


def is_slowest_stage(run: RuleInputs, stage: str) -> bool:
    """Tell whether this stage is the slowest one.

    Rules that take a stage's time for what its bytes or pixels cost are then silent.
    """
    slowest = slowest_stage(run)
    return slowest is not None and slowest[0].stage == stage


def _at_helpers(run: RuleInputs) -> bool:
    """Tell whether that one waits for threads that a library has started.

    It then stands at a lock that the program did not make.
    """
    slowest = slowest_stage(run)
    return slowest is not None and spins(slowest[0].stage) and waits_for_helpers(run, slowest[0])


def at_own_locks(run: RuleInputs) -> bool:
    """Tell whether the locks at which samples wait are those of a library's threads.

    Other workers do not wait for them.
    """
    return _at_helpers(run) or decoder_threads(run)
