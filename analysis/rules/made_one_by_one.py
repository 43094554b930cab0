"""Batches are made sample by sample in the main process, and so cheaply that no worker could spare the step anything."""

from feedline.analysis.facts import Facts
from feedline.analysis.finding import Evidence, Finding, Severity
from feedline.analysis.quantities import seconds
from feedline.analysis.rules.handover import receiving_s
from feedline.analysis.rules.held import MIN_WAIT_SHARE, held, num_workers, severity

CAUSE = "made_one_by_one"


def check(facts: Facts) -> Finding | None:
    """Compare making a step's batches with receiving them from workers, which takes as long or longer."""
    making, receiving, size = held(facts).making_s, receiving_s(facts), facts.throughput.batch_size
    if num_workers(facts) != 0 or not size or size < 2 or making - receiving.high >= MIN_WAIT_SHARE * facts.step.mean_s:
        return None
    weight = severity(facts, making)
    if weight is Severity.INFO:
        return None
    between = f"{seconds(receiving.low)} to {seconds(receiving.high)}"
    return Finding(
        CAUSE,
        weight,
        says=f"making a batch takes {seconds(making)} of each {seconds(facts.step.mean_s)} step, sample by sample; "
        f"workers cannot spare it: receiving a batch from one takes {between}",
        evidence=[
            Evidence("making a step's batches (S)", making, "s"),
            Evidence("making one sample", making / size, "s"),
            Evidence("receiving them from workers, at least (not measured in this run)", receiving.low, "s"),
            Evidence("receiving them from workers, at most (not measured in this run)", receiving.high, "s"),
        ],
        fix="keep num_workers=0 and make each batch in one call: index with all of its indices at once "
        "(sampler=BatchSampler(...), batch_size=None) and transform the whole batch; or take larger batches",
        disproof="an epoch over the loader alone takes as long when batches are made in one call",
        cost_s=making,
    )
