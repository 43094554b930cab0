"""Collectives move bytes while the device computes nothing."""

from feedline.analysis.finding import SHARE, Evidence, Finding, Severity
from feedline.analysis.quantities import seconds, share
from feedline.analysis.traces.facts import TraceFacts

CAUSE = "exposed_communication"
MUCH_LESS = 0.5  # of the shown rank's: then waiting is most of it


def check(facts: TraceFacts) -> Finding | None:
    """Weigh the shown rank's, and name the rank that has least: what the others have more may be waiting in disguise."""
    part = facts.share("exposed_transfer")
    weight = Severity.of(part)
    if weight is Severity.INFO:
        return None
    cost_s = facts.cost_s("exposed_transfer")
    hidden = facts.shown.gpu.overlap_pct_of_comm
    alone = facts.between is None or not facts.between.waiting
    which = "one rank's trace" if facts.between is None else "these traces"
    unsplit = f", waiting for other ranks included: {which} cannot tell the two apart" if alone else ""
    return Finding(
        CAUSE,
        weight,
        says=f"communication that no computing covers takes {share(part)} of {facts.whole}, {seconds(cost_s)}{unsplit}{_least(facts)}",
        evidence=[
            Evidence("exposed communication", part, SHARE),
            *([Evidence("communication that runs beside computing", hidden / 100, SHARE)] if hidden is not None else []),
        ],
        fix="ingest all ranks' traces together: feedline can then separate transfer time from waiting time"
        if alone
        else "gradients in bf16, larger batches per rank, fewer updates (no_sync), other buckets (bucket_cap_mb), or a faster link",
        disproof="a step that is as long with every rank training alone",
        cost_s=cost_s,
    )


def _least(facts: TraceFacts) -> str:
    """The rank that has least of it, where that is far less: the rest of the shown rank's is then waiting that clocks could not tell."""
    least = min(facts.budgets, key=lambda rank: facts.cost_s("exposed_transfer", rank))
    least_s = facts.cost_s("exposed_transfer", least)
    if least_s > MUCH_LESS * facts.cost_s("exposed_transfer"):
        return ""
    return f"; on rank {least} it takes {seconds(least_s)}, so most of it is waiting for other ranks"
