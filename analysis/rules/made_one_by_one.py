"""Batches are made sample by sample in the main process, and so cheaply that it is not sure whether workers would help."""

from feedline.analysis.facts import Facts
from feedline.analysis.finding import Evidence, Finding, Severity
from feedline.analysis.quantities import seconds
from feedline.analysis.rules.handover import Between, receiving_s
from feedline.analysis.rules.held import MIN_WAIT_SHARE, held, num_workers, severity

CAUSE = "made_one_by_one"
IN_ONE_CALL = (
    "make each batch in one call: index with all of its indices at once (sampler=BatchSampler(...), batch_size=None) "
    "and transform the whole batch; or use larger batches"
)


def check(facts: Facts) -> Finding | None:
    """Compare making a step's batches with receiving them from workers; silent where workers help for sure."""
    making, receiving, size = held(facts).making_s, receiving_s(facts), facts.throughput.batch_size
    if num_workers(facts) != 0 or not size or size < 2 or making - receiving.high >= MIN_WAIT_SHARE * facts.step.mean_s:
        return None
    weight = severity(facts, making)
    if weight is Severity.INFO:
        return None
    saved = Between(making - receiving.high, making - receiving.low)
    return Finding(
        CAUSE,
        weight,
        says=f"the main process makes each batch one sample at a time, in {seconds(making)} per step; {_with_workers(saved, receiving)}",
        evidence=_evidence(making, size, receiving, saved),
        fix=f"keep num_workers=0 and {IN_ONE_CALL}" if saved.low <= 0 else IN_ONE_CALL,
        disproof="an epoch over the loader alone takes as long when batches are made in one call",
        cost_s=making,
    )


def _with_workers(saved: Between, receiving: Between) -> str:
    taking = f"receiving a batch from one takes {seconds(receiving.low)} to {seconds(receiving.high)}"
    if saved.low > 0:
        return f"workers would save {seconds(saved.low)} to {seconds(saved.high)} of that, because {taking}"
    return f"workers {'would take longer' if saved.high <= 0 else 'may not help'}: {taking}"


def _evidence(making: float, size: float, receiving: Between, saved: Between) -> list[Evidence]:
    found = [
        Evidence("making_s", "making a step's batches (S)", making, "s"),
        Evidence("sample_s", "making one sample", making / size, "s"),
        Evidence("receiving_s", "receiving them from workers, at least (not measured in this run)", receiving.low, "s", "lower"),
        Evidence("receiving_s", "receiving them from workers, at most (not measured in this run)", receiving.high, "s", "upper"),
    ]
    if saved.low > 0:
        found.append(Evidence("saved_s", "what workers would save, at least", saved.low, "s", "lower"))
        found.append(Evidence("saved_s", "what workers would save, at most", saved.high, "s", "upper"))
    return found
