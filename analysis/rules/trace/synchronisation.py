"""The host stands in a call that waits for the device, which then has nothing queued."""

from feedline.analysis.formatting import share
from feedline.analysis.ledger.change import Refused
from feedline.analysis.ledger.finding import SHARE, Evidence, Finding, Severity
from feedline.analysis.ledger.rule import Rule
from feedline.analysis.ledger.trace_facts import TraceFacts

RULE_ID = "synchronisation"


def check(facts: TraceFacts) -> Finding | None:
    """Weigh the time in which the device was idle and the host in a synchronizing call."""
    part = facts.share("synchronisation")
    weight = Severity.of(part)
    if weight is Severity.INFO:
        return None
    return Finding(
        RULE_ID,
        weight,
        message=f"the device is idle for {share(part)} of {facts.whole} while the host is blocked "
        f"in calls that synchronize with it",
        evidence=[
            Evidence(
                "synchronisation_share", "device idle while the host synchronized", part, SHARE
            )
        ],
        fix=f"Read results back less often (.item(), .cpu(), printing the loss, boolean masks in "
        f"the model){_copies(facts)}.",
        how_to_check="Train without these calls. If the step is no faster, this finding is wrong.",
        cost_s=facts.cost_s("synchronisation"),
    )


def _copies(facts: TraceFacts) -> str:
    """Say what to do about copies to the device for which the host waits.

    It is empty where none was traced.
    """
    waits = any(
        row.which.direction == "HtoD" and row.which.memory == "pageable"
        for row in facts.shown.copies
    )
    return ", and copy to the device from pinned memory with non_blocking=True" if waits else ""


def change(facts: TraceFacts) -> Refused:
    """Refuse to predict: which calls can be left out is unknown."""
    return Refused(
        "unknown_synchronization",
        "Which synchronizing calls are unnecessary is unknown. Remove one, and trace again.",
    )


RULE: Rule[TraceFacts] = Rule(
    RULE_ID, check, change, claims=("synchronising",), bound="Bound by synchronization"
)
