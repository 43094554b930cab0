"""Collectives move bytes while the device computes nothing."""

from feedline.analysis.finding import SHARE, Evidence, Finding, Severity
from feedline.analysis.quantities import seconds, share
from feedline.analysis.traces.facts import TraceFacts, mean_step_s

CAUSE = "exposed_communication"


def check(facts: TraceFacts) -> Finding | None:
    """Weigh the rank that has least of it: what the others have more is waiting in disguise."""
    least = min(facts.budgets, key=lambda rank: facts.budgets[rank].shares.get("exposed_transfer", 0.0))
    part = facts.budgets[least].shares.get("exposed_transfer", 0.0)
    weight = Severity.of(part)
    if weight is Severity.INFO:
        return None
    cost_s = part * mean_step_s(facts.budgets[least])
    hidden = facts.shown.gpu.overlap_pct_of_comm
    alone = facts.between is None or not facts.between.waiting
    unsplit = ", waiting for other ranks included: one rank's trace cannot tell the two apart" if alone else ""
    return Finding(
        CAUSE,
        weight,
        says=f"communication that no computing covers takes {share(part)} of {facts.whole}, {seconds(cost_s)}{unsplit}",
        evidence=[
            Evidence("exposed communication, of the rank that has least", part, SHARE),
            *([Evidence("communication that runs beside computing", hidden / 100, SHARE)] if hidden is not None else []),
        ],
        fix="ingest all ranks' traces together: feedline can then separate transfer time from waiting time"
        if alone
        else "gradients in bf16, larger batches per rank, fewer updates (no_sync), other buckets (bucket_cap_mb), or a faster link",
        disproof="a step that is as long with every rank training alone",
        cost_s=cost_s,
    )
