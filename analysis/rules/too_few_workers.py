"""There are no workers, or too few to keep pace with the step, while CPUs are free."""

import math

from feedline.analysis.facts import Facts
from feedline.analysis.finding import SHARE, Evidence, Finding, Severity
from feedline.analysis.quantities import seconds
from feedline.analysis.rules import cpus
from feedline.analysis.rules.held import batches_per_step, compute_s, held, num_workers, severity, shortage_s

CAUSE = "too_few_workers"

#: Workers beyond S / C, because batches do not take equally long (docs/rules.md).
MARGIN = 1.15

#: C is taken as at least this share of the step: where the input is more than 95 % of it, S / C divides by noise.
MIN_COMPUTE_SHARE = 0.05


def check(facts: Facts) -> Finding | None:
    """Compare how fast the workers could make batches with how fast the step could use them; silent where the CPUs are full."""
    workers = num_workers(facts)
    lack_s = held(facts).making_s if workers == 0 else shortage_s(facts)
    if workers is None or lack_s is None or cpus.queueing(facts):
        return None
    free_s = facts.step.mean_s * max(0.0, 1 - (cpus.own_share(facts) or 0.0))
    cost_s = min(
        lack_s, lack_s * (cpus.blocked_share(facts) or 0.0) + free_s
    )  # what is CPU work needs a free CPU to be done beside the step
    weight = severity(facts, cost_s)
    if weight is Severity.INFO:
        return None
    return Finding(CAUSE, weight, _says(facts, workers), _evidence(facts), _fix(facts, workers), _DISPROOF, cost_s)


_DISPROOF = "with one more worker the samples per second stay the same, or CPU seconds per sample grow"


def needed(facts: Facts) -> int | None:
    """W*: workers that keep pace with the step, capped by what the CPUs can run. None: the making of a batch was not measured."""
    batch_s = facts.workers.fetch_mean_s if facts.workers else None
    compute = max(compute_s(facts), MIN_COMPUTE_SHARE * facts.step.mean_s)
    if not batch_s or compute <= 0:
        return None
    wanted = math.ceil(MARGIN * batch_s * batches_per_step(facts) / compute)
    return max((num_workers(facts) or 0) + 1, min(wanted, _carried(facts, wanted)))


def _carried(facts: Facts, wanted: int) -> int:
    """How many workers the CPUs can run: one each, more where a sample is partly blocked."""
    total = cpus.total(facts)
    if total is None or total.cpu_s is None:
        return math.ceil(facts.effective_cpus)
    return math.ceil(min(float(wanted), facts.effective_cpus * total.wall_s / max(total.cpu_s, 1e-9)))


def _says(facts: Facts, workers: int) -> str:
    making = seconds(held(facts).making_s)
    if workers == 0:
        return f"no workers: the main process makes every batch itself, {making} of each {seconds(facts.step.mean_s)} step"
    batch = seconds(facts.workers.fetch_mean_s if facts.workers else None)
    step = seconds(compute_s(facts))
    return f"{workers} worker{'s' * (workers > 1)} cannot keep pace: a batch takes {batch} to make, a step without waiting {step}"


def _evidence(facts: Facts) -> list[Evidence]:
    maker = facts.workers
    found = [
        ("making a batch (S)", maker.fetch_mean_s if maker else None, "s"),
        ("step without waiting (C)", compute_s(facts), "s"),
        ("workers' idle share", maker.idle_share if maker else None, SHARE),
        ("ready share of the requests for a batch", facts.ready_share, SHARE),
        ("CPUs that this training uses", cpus.own_cpus(facts), "CPUs"),
        ("CPUs that other programs use", facts.cpus.others if facts.cpus else None, "CPUs"),
        ("CPUs that may be used", facts.effective_cpus, "CPUs"),
    ]
    return [Evidence(what, value, unit) for what, value, unit in found if value is not None]


def _fix(facts: Facts, workers: int) -> str:
    number = needed(facts)
    if number is None:
        return f"set num_workers to {workers + 1} or more and look again"
    return f"set num_workers={number}; {cpus.use(facts)}"
