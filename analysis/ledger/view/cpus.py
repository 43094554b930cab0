"""Where the CPUs go, and whether there is a CPU left."""

import math

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import CostKind
from feedline.analysis.ledger.view.input_wait import input_wait, making_share
from feedline.analysis.ledger.view.sample import (
    blocked_share,
    total,
)
from feedline.analysis.measure.model import MIN_OTHERS, Cpus
from feedline.analysis.measure.stages import MAKING_STAGES
from feedline.analysis.text.formatting import number
from feedline.analysis.text.sentences import NUMBER, PART, Sentence

_NOT_MEASURED = Sentence("how many of {cpus} are free was not measured", cpus=PART)
_CROWDED = Sentence(
    "Other programs used {others} of {cpus}, and none was free: stop them first, or more workers "
    "may only wait for CPUs.",
    others=NUMBER,
    cpus=PART,
)
_MAKING = Sentence("making samples uses {own} of {cpus}", own=NUMBER, cpus=PART)

#: A sample that waits longer than this for a CPU competes for it (docs/rules/cpu_saturated.md).
#: With a CPU to itself the share is below 1 %.
MAX_RUNQUEUE_SHARE = 0.15

#: Where the training itself uses more of its CPUs than this, more workers win less than 1 / 0.8 =
#: 1.25x (docs/rules/cpu_saturated.md).
_MAX_USED_SHARE = 0.80

#: Of the CPUs: where more are free on average, samples queue for other reasons than that there are
#: too few.
_MIN_FREE_SHARE = 0.25

#: Where other programs' use was not sampled, samples wait for the training itself only if it takes
#: this share of the CPUs (docs/rules/cpu_saturated.md).
_MIN_OWN_SHARE = 0.50

#: A training that uses more of its quota than this is stopped by it, again and again, and its main
#: thread too: no wait tells how long.
_THROTTLED = 0.90

#: Of the CPU time of the training: where making samples takes less, other code fills the CPUs.
MIN_MAKING = 0.20

#: Samples that are blocked longer than this leave their CPU to others: a full CPU is then not what
#: they wait for.
_MOSTLY_BLOCKED = 0.50


def cpu_share_of(facts: RuleInputs, stage: str) -> float:
    """Return a stage's share (0 to 1) of a sample's CPU time.

    It is that of its wall time where CPU time was not measured. Stages are known from some of the
    samples and the whole from all: where these had less of the CPUs, the stages' sum is the larger
    one.
    """
    whole, costs, part = total(facts), facts.costs, facts.costs.get(stage)
    if whole is None or part is None or part.cpu_s is None or not whole.cpu_s:
        return making_share(facts, stage)
    return part.cpu_s / max(
        whole.cpu_s, sum(costs[name].cpu_s or 0.0 for name in MAKING_STAGES if name in costs)
    )


def making_wait_s(facts: RuleInputs) -> float:
    """Return the seconds per step for batches that are being made.

    Where the CPUs are full, their way from the worker counts as well, which needs a CPU too:
    samples that take less of them leave one to it. Where a quota stops the training, it is all that
    making them takes of the quota.
    """
    waits = input_wait(facts)
    waits_s = waits.making_s + (waits.handover_s + waits.transport_s if saturated(facts) else 0.0)
    return (
        max(waits_s, min(facts.step.mean_s, _making_s_of_quota(facts)))
        if throttled(facts)
        else waits_s
    )


def _making_s_of_quota(facts: RuleInputs) -> float:
    """Return the seconds per step in which the whole quota makes samples."""
    cost = total(facts)
    return (
        (cost.cpu_s or 0.0) * (facts.throughput.batch_size or 0.0) / facts.effective_cpus
        if cost and facts.effective_cpus
        else 0.0
    )


def throttled(facts: RuleInputs) -> bool:
    """Tell whether the quota of its control group stops the training.

    Its affinity mask allows more CPUs.
    """
    use = facts.cpus
    if (
        use is None
        or use.quota is None
        or use.own is None
        or use.quota >= (use.affinity or math.inf)
    ):
        return False
    return use.quota <= use.allowed < use.own / _THROTTLED


def cost_share(facts: RuleInputs, *stages: str) -> float:
    """Return the share (0 to 1) of the making of a batch that these stages cost.

    Where the CPUs are full, it is that of CPU time, because which thread then waits for one is
    chance.
    """
    if not saturated(facts):
        return making_share(facts, *stages)
    by_cpu = min(1.0, sum(cpu_share_of(facts, stage) for stage in stages))
    return by_cpu if throttled(facts) else max(by_cpu, making_share(facts, *stages))


def own_cpus(facts: RuleInputs) -> float | None:
    """Return how many CPUs the training itself uses while its steps run.

    Where that was not sampled, it is what the making of samples takes.
    """
    if facts.cpus is not None and facts.cpus.own is not None:
        return facts.cpus.own
    cost, rate = total(facts), facts.throughput.samples_per_s
    cpu_s = facts.process_cpu_s if facts.process_cpu_s is not None else cost.cpu_s if cost else None
    return cpu_s * rate if cpu_s is not None and rate is not None else None


def making_cpus(facts: RuleInputs) -> float | None:
    """Return how many CPUs all ranks use for making samples, helper threads included."""
    cost, rate = total(facts), facts.throughput.samples_per_s
    if cost is None or cost.cpu_s is None or rate is None:
        return None
    return (
        max(cost.cpu_s, facts.process_cpu_s or 0.0)
        * rate
        * (facts.cpus.ranks if facts.cpus and facts.cpus.own is not None else 1)
    )


def making_share_of_training(facts: RuleInputs) -> float | None:
    """Return the share (0 to 1) of the CPU time of the training that making samples takes.

    Cheaper ones spare no more of a step on full CPUs. Where the use of the training was not
    sampled, it is the least that the share can be: the training uses no more CPUs than it may.
    None: what samples take was not measured.
    """
    sampled = facts.cpus.own if facts.cpus is not None else None
    making, own = making_cpus(facts), facts.effective_cpus if sampled is None else sampled
    return min(1.0, making / own) if making is not None and own else None


def _own_share(facts: RuleInputs) -> float | None:
    """Return the share of the CPUs that it may use that the training uses."""
    used = own_cpus(facts)
    return used / facts.effective_cpus if used is not None and facts.effective_cpus > 0 else None


def left_by_others(facts: RuleInputs) -> float:
    """Return how many CPUs a rank may use beside the other programs.

    It is one at least, which it shares with them.
    """
    use = facts.cpus
    return max(
        1.0,
        (facts.effective_cpus - (use.others or 0.0)) / use.ranks if use else facts.effective_cpus,
    )


def by_others(facts: RuleInputs) -> float:
    """Return the share (0 to 1) of the waiting for a CPU that would end with other programs.

    It is what they hold and the run may use over what it lacks. What a quota keeps from the run is
    not theirs: a thread that it stops waits as one does that another program keeps from its CPU.
    """
    use, lacking = facts.cpus, facts.waiting_cpus()
    if use is None or not use.others or use.own is None or lacking <= 0:
        return 0.0
    return min(1.0, min(use.others, max(0.0, use.allowed - use.own)) / (lacking * use.ranks))


def saturated(facts: RuleInputs) -> bool:
    """Tell whether the training itself fills the CPUs.

    Samples would wait for one without any other program too.
    """
    if (blocked_share(facts) or 0.0) > _MOSTLY_BLOCKED:
        return False
    queued = (facts.runqueue_share or 0.0) * (1 - by_others(facts)) > MAX_RUNQUEUE_SHARE
    share, use = _own_share(facts) or 0.0, facts.cpus
    if use is not None and use.others is not None:
        full = use.free is None or use.free < _MIN_FREE_SHARE * use.allowed
    else:
        full = share > _MIN_OWN_SHARE
    return queued and full or share > _MAX_USED_SHARE


def queueing(facts: RuleInputs) -> bool:
    """Tell whether samples wait for a CPU, whoever has it: more workers would wait beside them."""
    return saturated(facts) or (
        (blocked_share(facts) or 0.0) <= _MOSTLY_BLOCKED
        and (facts.runqueue_share or 0.0) > MAX_RUNQUEUE_SHARE
    )


def contended(facts: RuleInputs) -> bool:
    """Tell whether other programs use CPUs, and leave none free.

    A training that takes less of a CPU then gets more of it for the rest.
    """
    use = facts.cpus
    return (
        use is not None
        and use.others is not None
        and use.others >= MIN_OTHERS
        and (use.free is None or use.free < MIN_OTHERS)
    )


def crowded(facts: RuleInputs) -> str:
    """Say that more workers would wait for CPUs that other programs hold; empty: they hold none."""
    if facts.cpus is None or facts.cpus.others is None or not contended(facts):
        return ""
    return _CROWDED(others=facts.cpus.others, cpus=may_use(facts))


def kind_of_work(facts: RuleInputs) -> CostKind:
    """Return what the time of work says of the gain of a fix that makes the work cheaper.

    Some of the work remains, so its time is a bound. Where samples or the step wait for a CPU,
    whoever has it, the rest gets faster as well.
    """
    shared = queueing(facts) or (contended(facts) and not facts.on_gpu)
    return CostKind.ESTIMATED if shared else CostKind.BOUND


def use(facts: RuleInputs) -> list[str]:
    """Return what uses the CPUs, in sentences: the basis of advice about workers."""
    if facts.cpus is not None and facts.cpus.own is not None:
        return _sentences(facts.cpus)
    own = own_cpus(facts)
    if own is None:
        return [_NOT_MEASURED(cpus=may_use(facts))]
    return [_MAKING(own=own, cpus=may_use(facts)), "CPU use by other programs was not sampled"]


def may_use(facts: RuleInputs) -> str:
    """Return ``2 CPUs``, and what limits them."""
    return _limited(facts.effective_cpus, facts.cpus.quota if facts.cpus else None)


def _limited(allowed: float, quota: float | None) -> str:
    """Return ``2 CPUs``, and whether a quota is what limits them."""
    limited = quota is not None and quota <= allowed
    return (
        f"{allowed:g} "
        f"CPU{'s' * (allowed != 1)}{' (the quota of its control group)' if limited else ''}"
    )


def says(use: Cpus) -> str:
    """Who used the CPUs, in words; ``own`` is known."""
    return "; ".join(_sentences(use))


def _sentences(use: Cpus) -> list[str]:
    """Return the same as sentences: of the training and other programs, and of what is free."""
    of = f"this training uses {number(use.own)} of {_limited(use.allowed, use.quota)}"
    if use.others is None or use.free is None:
        return [of]
    busy = f", other programs use {number(use.others)}" if use.others >= MIN_OTHERS else ""
    free = f"{number(use.free)} CPUs are free" if use.free >= MIN_OTHERS else "no CPU is free"
    return [f"{of}{busy}", free]
