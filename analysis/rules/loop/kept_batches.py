"""Batches that the program keeps hold all files that it may open, and the training ended with it."""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import Finding, Refused, Severity
from feedline.analysis.ledger.rule import Rule
from feedline.profiler.session.ending import ALL_OPEN

_RULE_ID = "kept_batches"

_SAYS = "too many files are open: each batch that the program keeps holds some"
_EACH = "each tensor from a worker is in shared memory, and keeps a file descriptor open"
_FIX = "Keep tensor.clone() or a number, not the tensors that the loader gives."
_STRATEGY = "Or call torch.multiprocessing.set_sharing_strategy('file_system') at the beginning."


def _check(facts: RuleInputs) -> Finding | None:
    """Say so of a training that ended with torch's error about it."""
    if ALL_OPEN not in facts.failed:
        return None
    return Finding(
        _RULE_ID,
        Severity.HIGH,
        message=_SAYS,
        more=[_EACH],
        fix=_FIX,
        fix_more=[_STRATEGY],
        place=facts.adding_line,
        gives="the training goes on",
        how_to_check="Count the entries of /proc/PID/fd while it trains. If they do not become "
        "more, this finding is wrong.",
    )


def _change(facts: RuleInputs) -> Refused:
    """Refuse to predict: it takes no time until the training ends."""
    return Refused("files", "Kept batches take no time until no more files can be opened.")


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    bound="Ended early",
    in_part=False,
    lifts=frozenset(),
    ends_training=True,
    action="keep fewer batches",
)
