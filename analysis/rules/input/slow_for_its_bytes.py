"""A stage takes ten times what its bytes or pixels should, so something else takes the time."""

from feedline.analysis.formatting import seconds
from feedline.analysis.ledger.change import Change, Refused
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import Evidence, Finding, Severity, measured
from feedline.analysis.ledger.view.expected import Work, works
from feedline.analysis.ledger.view.input_wait import severity
from feedline.analysis.ledger.view.storage import decoder_threads
from feedline.analysis.ledger.view.why_slow import UNKNOWN_CALL, Why, spins, waits_for_helpers, why

RULE_ID = "slow_for_its_bytes"


def check(facts: RuleInputs) -> Finding | None:
    """Compare every stage with what it handles."""
    found = _slowest(facts)
    if found is None:
        return None
    work, cause = found
    weight = severity(facts, work.lost_s)
    if weight is Severity.INFO:
        return None
    return Finding(
        RULE_ID,
        weight,
        message=f"{work.name} takes {seconds(work.cost.wall_s)} per {work.per} {work.task}: {cause.message}",
        evidence=_evidence(work, cause),
        fix=cause.fix,
        how_to_check=cause.how_to_check,
        cost_s=work.lost_s + cause.also_s,
    )


def change(facts: RuleInputs) -> Change | Refused:
    """That of the cause."""
    found = _slowest(facts)
    return found[1].change if found else UNKNOWN_CALL


def _slowest(facts: RuleInputs) -> tuple[Work, Why] | None:
    """Of the stages that are far off, the one that costs most, and why; None where there is none."""
    found = [(work, cause) for work in works(facts) if (cause := why(facts, work)) is not None]
    return max(found, key=lambda both: both[0].lost_s) if found else None


def names(facts: RuleInputs, stage: str) -> bool:
    """Whether this stage is the one. Rules that take a stage's time for what its bytes or pixels cost are then silent."""
    found = _slowest(facts)
    return found is not None and found[0].stage == stage


def _at_helpers(facts: RuleInputs) -> bool:
    """Whether that one waits for threads that a library has started: it then stands at a lock that the program did not make."""
    found = _slowest(facts)
    return found is not None and spins(found[0].stage) and waits_for_helpers(facts, found[0])


def at_own_locks(facts: RuleInputs) -> bool:
    """Whether the locks at which samples wait are those of a library's threads: other workers do not wait for them."""
    return _at_helpers(facts) or decoder_threads(facts)


def _evidence(work: Work, cause: Why) -> list[Evidence]:
    cost = work.cost
    found = [
        ("cpu_s", "of that on a CPU", cost.cpu_s, "s"),
        ("runqueue_s", "of that waiting for a CPU", cost.runqueue_s, "s"),
        ("blocked_s", "of that blocked", cost.blocked_s, "s"),
        ("bytes", f"bytes per {work.per}", cost.bytes, "B"),
        ("expected_s", "expected at most", work.should_s, "s"),
    ]
    return [Evidence("wall_s", f"{work.name} per {work.per}", cost.wall_s, "s", work.stage), *measured(found), *cause.evidence]
