"""What it costs the step to receive its batches from workers, and how long it would be with another number of them.

With W workers a step takes as long as they need for its batches or as the main process needs to receive and use them, whichever is
longer; without workers the main process makes them itself:

    step(W) = max((S + t) / W, C + t, G, CPU time / CPUs) + b        step(0) = max(S + C, G)

G is the GPU's work for a step, which it does while the host waits for batches or makes them. b is what the beginnings of passes over the
loader cost: the first batch of each is made while the step waits, even by workers that are kept between passes. t, what a batch costs
besides being made, does not go away with its size: every tensor is a descriptor that the main process fetches from the worker over a
socket. Where the run has workers, t was measured; where it has none, it is taken from benchmarks/queue_cost.py.

This closed form decides whether there is a finding, which number of workers it names, and what it costs at most: rules have no recording
to replay. What that number gives is predicted by the replay (analysis/explain/predictions.py), which knows how batches vary and how CPUs
are shared.
"""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.view import cpus, sample
from feedline.analysis.ledger.view.handover_cost import (
    WORKER_START_S,
    Between,
    from_workers_s,
)
from feedline.analysis.ledger.view.input_wait import compute_s, input_wait, making_s, num_workers


def receiving_s(facts: RuleInputs) -> Between:
    """Return t, what receiving the batches of a step takes, s.

    It is measured where there are workers, apart from giving back the memory of batches.
    """
    if not num_workers(facts):
        return from_workers_s(facts).times(facts.batches_per_step)
    measured = input_wait(facts).transport_s
    return Between(measured, measured)


def alone_s(facts: RuleInputs) -> float | None:
    """Return step(0): the main process makes every batch itself."""
    making = making_s(facts)
    return (
        None
        if making is None
        else max(compute_s(facts) + input_wait(facts).sampler_s + making, facts.step.gpu_s)
    )


def with_workers_s(facts: RuleInputs, workers: float, receiving: float) -> float | None:
    """Return step(W), for a time to receive the batches of a step.

    Workers with uneven parts of a stream count as fewer, which may be no whole number.
    """
    making = making_s(facts)
    if making is None or workers < 1:
        return None
    taking = compute_s(facts) + input_wait(facts).sampler_s + receiving
    steady = max(
        (making + receiving) / workers,
        taking,
        facts.step.gpu_s,
        _on_cpus_s(facts, making, receiving),
    )
    starting = (
        WORKER_START_S * workers if facts.loader_made_again and not num_workers(facts) else 0.0
    )
    first = taking + (making + receiving) / facts.batches_per_step - receiving + starting
    return steady + max(0.0, first - steady) * _beginnings(facts)


def _beginnings(facts: RuleInputs) -> float:
    """Return how many passes over the loader begin per step that counts, without the first one."""
    return max(0, facts.epochs - 1) / max(facts.throughput.steps, 1)


def _on_cpus_s(facts: RuleInputs, making: float, receiving: float) -> float:
    """Return how long the step would be if its CPUs, and those that are free, were always busy."""
    handing_over = 0.0 if num_workers(facts) else 2 * receiving  # both sides work on it
    use = facts.cpus
    if use is None or use.own is None or use.free is None:
        used = compute_s(facts) + making * (1 - (sample.blocked_share(facts) or 0.0))
        return (used + handing_over) / max(facts.effective_cpus, 1e-9)
    return (use.own * facts.step.mean_s + handing_over) / max(use.own + use.free, 1e-9)


def crowded(facts: RuleInputs) -> bool:
    """Tell whether other programs leave the training less than one CPU.

    Which number of workers is best is then up to the scheduler. Where that was not sampled, a main
    thread that waits for a CPU is a sign of it.
    """
    if facts.cpus is None or facts.cpus.others is None:
        return (facts.main_runqueue_share or 0.0) > cpus.MAX_RUNQUEUE_SHARE
    return facts.cpus.allowed - facts.cpus.others < 1
