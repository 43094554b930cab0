"""The CPUs are full, so samples queue for them and more workers cannot help."""

from feedline.analysis.facts import Facts
from feedline.analysis.finding import SHARE, Evidence, Finding, Severity, measured
from feedline.analysis.quantities import number, share
from feedline.analysis.rules import cpus
from feedline.analysis.rules.held import held, severity

CAUSE = "cpu_saturated"
FIX = "spend less CPU per sample (faster decoder, smaller images, augmentation on the GPU) or get more CPUs; more workers only queue"


def check(facts: Facts) -> Finding | None:
    """Look for samples that wait for a CPU, or CPUs in use nearly all the time (thresholds: rules/cpus.py)."""
    waits = held(facts)
    cost_s = waits.making_s + waits.handover_s + waits.transport_s  # handing over a batch takes a turn of the worker as well
    weight = severity(facts, cost_s)
    if weight is Severity.INFO or not cpus.saturated(facts):
        return None
    return Finding(
        CAUSE,
        weight,
        says=_says(facts),
        evidence=_evidence(facts),
        fix=FIX
        if facts.cpus and facts.cpus.others is not None
        else f"see with top whether another program holds the CPUs; if none does, {FIX}",
        disproof="samples per second grow with one more worker",
        cost_s=cost_s,
    )


def _says(facts: Facts) -> str:
    queued, used = cpus.runqueue_share(facts), cpus.own_cpus(facts)
    if queued is not None and queued > cpus.MAX_RUNQUEUE_SHARE:
        return f"the CPUs are full: a sample spends {share(queued)} of its time waiting for one; {cpus.use(facts)}"
    return f"the CPUs are full: this training uses {number(used)} of {cpus.may_use(facts)} on average"


def _evidence(facts: Facts) -> list[Evidence]:
    total = cpus.total(facts)
    rate = facts.throughput.samples_per_s
    making = total.cpu_s * rate if total and total.cpu_s is not None and rate is not None else None
    found = [
        ("waiting_for_cpu_share", "share of a sample's time waiting for a CPU", cpus.runqueue_share(facts), SHARE),
        ("cpus_of_training", "CPUs that this training uses", cpus.own_cpus(facts), "CPUs"),
        ("cpus_of_others", "CPUs that other programs use", facts.cpus.others if facts.cpus else None, "CPUs"),
        ("cpus_of_making", "CPUs that the making of samples uses", making, "CPUs"),
        ("cpus_allowed", "CPUs that may be used", facts.effective_cpus, "CPUs"),
        ("sample_cpu_s", "CPU per sample", total.cpu_s if total else None, "s"),
    ]
    return measured(found)
