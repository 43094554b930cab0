"""Where the CPUs go: what a sample's time consists of, and whether there is a CPU left."""

from feedline.analysis.facts import Facts
from feedline.analysis.model import Cost
from feedline.analysis.rules.held import making_share

#: A sample that waits longer than this for a CPU competes for it (docs/rules.md). With a CPU to itself the share is below 1 %.
MAX_RUNQUEUE_SHARE = 0.15

#: With more of the CPUs in use than this, more workers win less than 1 / 0.8 = 1.25x (docs/rules.md).
MAX_USED_SHARE = 0.80

#: Samples that are blocked longer than this leave their CPU to others: a full CPU is then not what they wait for.
MOSTLY_BLOCKED = 0.50


def total(facts: Facts) -> Cost | None:
    """The whole cost of one sample; None where none was looked at."""
    cost = facts.workers.per_sample.get("total") if facts.workers else None
    return cost if cost and cost.wall_s > 0 else None


def runqueue_share(facts: Facts) -> float | None:
    """Share of a sample's wall time in which it could run but had no CPU."""
    cost = total(facts)
    return cost.runqueue_s / cost.wall_s if cost and cost.runqueue_s is not None else None


def blocked_share(facts: Facts) -> float | None:
    """Share of a sample's wall time in which it waited for a disk, a network, a lock or a sleep."""
    cost = total(facts)
    return cost.blocked_s / cost.wall_s if cost and cost.blocked_s is not None else None


def cpu_share_of(facts: Facts, stage: str) -> float:
    """This stage's share of a sample's CPU time; of its wall time where CPU time was not measured."""
    whole = total(facts)
    part = facts.workers.per_sample.get(stage) if facts.workers else None
    if whole is None or part is None or part.cpu_s is None or not whole.cpu_s:
        return making_share(facts, stage)
    return part.cpu_s / whole.cpu_s


def cost_share(facts: Facts, *stages: str) -> float:
    """Share (0 to 1) of the making of a batch that these stages cost: where the CPUs are full it goes by CPU time, for who then has to
    wait for one is chance."""
    by_cpu = min(1.0, sum(cpu_share_of(facts, stage) for stage in stages)) if saturated(facts) else 0.0
    return max(by_cpu, making_share(facts, *stages))


def used_cpus(facts: Facts) -> float | None:
    """CPUs in use by everything, and at least by the making of samples: what was sampled may include the program's idle start.

    A sampled figure above the CPUs that this process may use is of other CPUs too, and says nothing about these.
    """
    cost, rate = total(facts), facts.throughput.samples_per_s
    cpu_s = facts.process_cpu_s if facts.process_cpu_s is not None else cost.cpu_s if cost else None
    found = [cpu_s * rate] if cpu_s is not None and rate is not None else []
    if facts.used_cpus is not None and facts.used_cpus <= facts.effective_cpus:
        found.append(facts.used_cpus)
    return max(found, default=None)


def used_share(facts: Facts) -> float | None:
    """The same as a share of the CPUs that this process may use."""
    used = used_cpus(facts)
    return used / facts.effective_cpus if used is not None and facts.effective_cpus > 0 else None


def saturated(facts: Facts) -> bool:
    """Whether samples are held back by the number of CPUs, so that more workers cannot help."""
    if (blocked_share(facts) or 0.0) > MOSTLY_BLOCKED:
        return False
    return (runqueue_share(facts) or 0.0) > MAX_RUNQUEUE_SHARE or (used_share(facts) or 0.0) > MAX_USED_SHARE
