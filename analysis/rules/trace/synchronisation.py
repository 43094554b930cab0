"""The host stands in a call that waits for the device, which then has nothing queued."""

import re

from feedline.analysis.ledger.finding import SHARE, Evidence, Finding, Refused, Severity
from feedline.analysis.ledger.rule import Rule
from feedline.analysis.ledger.trace_facts import TraceFacts
from feedline.analysis.text.sentences import PART, PERCENT, Sentence

_RULE_ID = "synchronisation"

_SAYS = Sentence(
    "the device is idle for {part} of {whole} while the host waits for it in synchronizing calls",
    part=PERCENT,
    whole=PART,
)
_LESS_OFTEN = (
    "Read results back less often (.item(), .cpu(), printing the loss, boolean masks in the model)."
)
#: What torch.cuda.synchronize() calls; results are read back with a stream's.
_ALL_OF_DEVICE = re.compile(r"^(cuda|hip)DeviceSynchronize|^(cu|hip)CtxSynchronize")
_NEEDLESS = "Call torch.cuda.synchronize() less often: it waits for all work of the device."
_PINNED = "Copy to the device from pinned memory with non_blocking=True."


def _check(facts: TraceFacts) -> Finding | None:
    """Weigh the time in which the device was idle and the host in a synchronizing call."""
    part = facts.share("synchronisation")
    weight = Severity.of(part)
    if weight is Severity.INFO:
        return None
    return Finding(
        _RULE_ID,
        weight,
        message=_SAYS(part=part, whole=facts.whole),
        evidence=[
            Evidence(
                "synchronisation_share", "device idle while the host synchronized", part, SHARE
            )
        ],
        fix=_NEEDLESS if _ALL_OF_DEVICE.search(facts.shown.waits_in) else _LESS_OFTEN,
        fix_more=[_PINNED] if _waits_for_copies(facts) else [],
        how_to_check="Train without these calls. If the step is no faster, this finding is wrong.",
        cost_s=facts.cost_s("synchronisation"),
    )


def _waits_for_copies(facts: TraceFacts) -> bool:
    """Whether copies to the device were traced for which the host waits."""
    return any(
        row.which.direction == "HtoD" and row.which.memory == "pageable"
        for row in facts.shown.copies
    )


def _change(facts: TraceFacts) -> Refused:
    """Refuse to predict: which calls can be left out is unknown."""
    return Refused(
        "unknown_synchronization",
        "Which synchronizing calls are unnecessary is unknown. Remove one, and trace again.",
    )


RULE: Rule[TraceFacts] = Rule(
    _RULE_ID,
    _check,
    _change,
    claims=("synchronisation",),
    bound="Bound by synchronization",
    action="synchronize less often",
)
