"""Other programs hold the CPUs that the training waits for."""

from feedline.analysis.cpu_use import MIN_OTHERS
from feedline.analysis.facts import Facts
from feedline.analysis.finding import SHARE, Evidence, Finding, Severity
from feedline.analysis.quantities import number, seconds, share
from feedline.analysis.rules import cpus
from feedline.analysis.rules.held import held, num_workers

CAUSE = "busy_neighbors"


def check(facts: Facts) -> Finding | None:
    """Compare the CPUs that other programs hold with those that the training lacks while its step takes its time."""
    use, mean_s = facts.cpus, facts.step.mean_s
    if use is None or not use.others or use.others < MIN_OTHERS or mean_s <= 0:
        return None
    waits_s = waiting_s(facts)
    cost_s = waits_s * cpus.by_others(facts)
    weight = Severity.of(cost_s / mean_s)
    if weight is Severity.INFO:
        return None
    held_by = f"other programs hold {number(use.others)} of the {use.affinity or use.allowed:g} CPUs that this training may run on"
    found = [
        ("CPUs that other programs use", use.others, "CPUs"),
        ("CPUs that this training uses", use.own, "CPUs"),
        ("CPUs that may be used", use.allowed, "CPUs"),
        ("CPUs of the affinity mask", use.affinity, "CPUs"),
        ("waiting for a CPU per step", waits_s, "s"),
        ("share of a sample's time waiting for a CPU", cpus.runqueue_share(facts), SHARE),
    ]
    return Finding(
        CAUSE,
        weight,
        says=f"{held_by}, and {seconds(waits_s)} of each {seconds(mean_s)} step ({share(waits_s / mean_s)}) is waiting for a CPU",
        evidence=[Evidence(what, value, unit) for what, value, unit in found if value is not None],
        fix="end the other programs (top shows them) or keep them off these CPUs with taskset or a control group, and record again: "
        "they are part of every other figure here",
        disproof="without the other programs the step takes as long",
        cost_s=cost_s,
    )


def waiting_s(facts: Facts) -> float:
    """Seconds of the mean step in which it could have gone on with a CPU: its main thread's, and the workers' that it waited for."""
    own = (facts.main_runqueue_share or 0.0) * facts.step.mean_s
    of_workers = held(facts).making_s * (cpus.runqueue_share(facts) or 0.0) if num_workers(facts) else 0.0
    return min(own + of_workers, facts.step.mean_s)
