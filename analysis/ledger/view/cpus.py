"""Where the CPUs go: what a sample's time consists of, and whether there is a CPU left."""

import math

from feedline.analysis.formatting import number
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.view.input_wait import input_wait, making_share, num_workers
from feedline.analysis.measure import cpu_use
from feedline.analysis.measure.costs import accounted_cpu_s
from feedline.analysis.measure.model import Cost
from feedline.analysis.measure.stages import MAKING_STAGES

#: A sample that waits longer than this for a CPU competes for it (docs/rules.md). With a CPU to
#: itself the share is below 1 %.
MAX_RUNQUEUE_SHARE = 0.15

#: Where the training itself uses more of its CPUs than this, more workers win less than 1 / 0.8 =
#: 1.25x (docs/rules.md).
_MAX_USED_SHARE = 0.80

#: Of the CPUs: where more are free on average, samples queue for other reasons than that there are
#: too few.
_MIN_FREE_SHARE = 0.25

#: Where other programs' use was not sampled, samples wait for the training itself only if it takes
#: this share of the CPUs (docs/rules.md).
_MIN_OWN_SHARE = 0.50

#: A training that uses more of its quota than this is stopped by it, again and again, and its main
#: thread too: no wait tells how long.
_THROTTLED = 0.90

#: CPU of a whole process over that of the threads that are accounted for (docs/rules.md).
MIN_PROCESS_RATIO = 1.2

#: Samples that are blocked longer than this leave their CPU to others: a full CPU is then not what
#: they wait for.
_MOSTLY_BLOCKED = 0.50


def total(run: RuleInputs) -> Cost | None:
    """Return the whole cost of one sample; None where none was looked at."""
    cost = run.costs.get("total")
    return cost if cost and cost.wall_s > 0 else None


def blocked_share(run: RuleInputs) -> float | None:
    """Return the share of a sample's wall time in which it was blocked.

    It waited for a disk, a network, a lock or a sleep.
    """
    cost = total(run)
    return cost.blocked_s / cost.wall_s if cost and cost.blocked_s is not None else None


def cpu_share_of(run: RuleInputs, stage: str) -> float:
    """Return a stage's share (0 to 1) of a sample's CPU time.

    It is that of its wall time where CPU time was not measured. Stages are known from some of the
    samples and the whole from all: where these had less of the CPUs, the stages' sum is the larger
    one.
    """
    whole, costs, part = total(run), run.costs, run.costs.get(stage)
    if whole is None or part is None or part.cpu_s is None or not whole.cpu_s:
        return making_share(run, stage)
    return part.cpu_s / max(
        whole.cpu_s, sum(costs[name].cpu_s or 0.0 for name in MAKING_STAGES if name in costs)
    )


def making_wait_s(run: RuleInputs) -> float:
    """Return the seconds per step for batches that are being made.

    Where the CPUs are full, their way from the worker counts as well, which needs a CPU too:
    samples that take less of them leave one to it. Where a quota stops the training, it is all that
    making them takes of the quota.
    """
    waits = input_wait(run)
    waits_s = waits.making_s + (waits.handover_s + waits.transport_s if saturated(run) else 0.0)
    return (
        max(waits_s, min(run.step.mean_s, _making_s_of_quota(run))) if throttled(run) else waits_s
    )


def _making_s_of_quota(run: RuleInputs) -> float:
    """Return the seconds per step in which the whole quota makes samples."""
    cost = total(run)
    return (
        (cost.cpu_s or 0.0) * (run.throughput.batch_size or 0.0) / run.effective_cpus
        if cost and run.effective_cpus
        else 0.0
    )


def throttled(run: RuleInputs) -> bool:
    """Tell whether the quota of its control group stops the training.

    Its affinity mask allows more CPUs.
    """
    use = run.cpus
    if (
        use is None
        or use.quota is None
        or use.own is None
        or use.quota >= (use.affinity or math.inf)
    ):
        return False
    return use.quota <= use.allowed < use.own / _THROTTLED


def beyond_quota_s(run: RuleInputs) -> float:
    """Return the seconds per step that more CPUs can spare at most.

    The step then takes what as many CPUs of the affinity mask as it has processes need for its CPU
    time, or all of them where there are helper threads. 0 without a quota that stops it.
    """
    use = run.cpus
    if not throttled(run) or use is None or not use.own or not use.affinity:
        return 0.0
    helped = (process_ratio(run) or 1.0) > MIN_PROCESS_RATIO
    most = use.affinity if helped else min(use.affinity, use.ranks * ((num_workers(run) or 0) + 1))
    return run.step.mean_s * max(0.0, 1 - use.own / most)


def cost_share(run: RuleInputs, *stages: str) -> float:
    """Return the share (0 to 1) of the making of a batch that these stages cost.

    Where the CPUs are full, it is that of CPU time, because which thread then waits for one is
    chance.
    """
    if not saturated(run):
        return making_share(run, *stages)
    by_cpu = min(1.0, sum(cpu_share_of(run, stage) for stage in stages))
    return by_cpu if throttled(run) else max(by_cpu, making_share(run, *stages))


def process_ratio(run: RuleInputs) -> float | None:
    """Return the CPU time of the processes that make samples over that of their known threads.

    Above 1 there are helper threads.
    """
    process_s, accounted_s = run.process_cpu_s, accounted(run)
    return process_s / accounted_s if process_s is not None and accounted_s else None


def accounted(run: RuleInputs) -> float | None:
    """Return the CPU seconds per sample of the threads that make and send it."""
    cost = total(run)
    return accounted_cpu_s(run.costs) if cost and cost.cpu_s else None


def own_cpus(run: RuleInputs) -> float | None:
    """Return how many CPUs the training itself uses while its steps run.

    Where that was not sampled, it is what the making of samples takes.
    """
    if run.cpus is not None and run.cpus.own is not None:
        return run.cpus.own
    cost, rate = total(run), run.throughput.samples_per_s
    cpu_s = run.process_cpu_s if run.process_cpu_s is not None else cost.cpu_s if cost else None
    return cpu_s * rate if cpu_s is not None and rate is not None else None


def _own_share(run: RuleInputs) -> float | None:
    """Return the share of the CPUs that it may use that the training uses."""
    used = own_cpus(run)
    return used / run.effective_cpus if used is not None and run.effective_cpus > 0 else None


def left_by_others(run: RuleInputs) -> float:
    """Return how many CPUs a rank may use beside the other programs.

    It is one at least, which it shares with them.
    """
    use = run.cpus
    return max(
        1.0,
        (run.effective_cpus - (use.others or 0.0)) / use.ranks if use else run.effective_cpus,
    )


def by_others(run: RuleInputs) -> float:
    """Return the share (0 to 1) of the waiting for a CPU that would end with other programs.

    It is what they hold and the run may use over what it lacks. What a quota keeps from the run is
    not theirs: a thread that it stops waits as one does that another program keeps from its CPU.
    """
    use, lacking = run.cpus, run.waiting_cpus()
    if use is None or not use.others or use.own is None or lacking <= 0:
        return 0.0
    return min(1.0, min(use.others, max(0.0, use.allowed - use.own)) / (lacking * use.ranks))


def saturated(run: RuleInputs) -> bool:
    """Tell whether the training itself fills the CPUs.

    Samples would wait for one without any other program too.
    """
    if (blocked_share(run) or 0.0) > _MOSTLY_BLOCKED:
        return False
    queued = (run.runqueue_share or 0.0) * (1 - by_others(run)) > MAX_RUNQUEUE_SHARE
    share, use = _own_share(run) or 0.0, run.cpus
    if use is not None and use.others is not None:
        full = use.free is None or use.free < _MIN_FREE_SHARE * use.allowed
    else:
        full = share > _MIN_OWN_SHARE
    return queued and full or share > _MAX_USED_SHARE


def queueing(run: RuleInputs) -> bool:
    """Tell whether samples wait for a CPU, whoever has it: more workers would wait beside them."""
    return saturated(run) or (
        (blocked_share(run) or 0.0) <= _MOSTLY_BLOCKED
        and (run.runqueue_share or 0.0) > MAX_RUNQUEUE_SHARE
    )


def use(run: RuleInputs) -> str:
    """Return what uses the CPUs, in words: the basis of advice about workers."""
    if run.cpus is not None and run.cpus.own is not None:
        return cpu_use.says(run.cpus)
    own = own_cpus(run)
    if own is None:
        return f"how many of {may_use(run)} are free was not measured"
    return (
        f"making samples uses {number(own)} of {may_use(run)}; CPU use by other programs was "
        f"not sampled"
    )


def may_use(run: RuleInputs) -> str:
    """Return ``2 CPUs``, and what limits them."""
    return cpu_use.may_use(run.effective_cpus, run.cpus.quota if run.cpus else None)
