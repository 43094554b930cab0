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

from dataclasses import dataclass

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.view import sample
from feedline.analysis.ledger.view.input_wait import compute_s, input_wait, making_s, num_workers


@dataclass(frozen=True)
class Between:
    """Seconds, at least and at most."""

    low: float
    high: float

    def plus(self, other: "Between") -> "Between":
        return Between(self.low + other.low, self.high + other.high)

    def times(self, factor: float) -> "Between":
        return Between(self.low * factor, self.high * factor)

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2


#: A batch through a worker's queue and each tensor in it, in the main thread
#: (docs/rules/queue_cost.md): its CPU time where the caches are warm, and what it took between
#: steps that compute for 15 ms.
_PER_BATCH_S = Between(0.2e-3, 1.0e-3)
_PER_TENSOR_S = Between(0.1e-3, 0.4e-3)

#: The pages of shared memory are new to the main process: the first touch of each is a fault
#: (docs/rules/queue_cost.md).
_PER_BYTE_S = Between(0.1e-9, 0.3e-9)

#: When a batch is dropped, its shared memory goes back to the system: CPU time of the main thread
#: (benchmarks/freeing.py). Private memory takes 0.007 ns.
FREEING_S_PER_BYTE = Between(0.1e-9, 0.3e-9)

#: What a tensor's shared memory takes besides, whatever its size: a worker makes a file of it, and
#: the main thread unmaps it and closes the file (benchmarks/freeing.py --mb 0.001).
SHARING_S_PER_TENSOR = 45e-6
_FREEING_S_PER_TENSOR = 17e-6

#: Forking a worker of a training and its first batch (docs/rules/queue_cost.md): 40 to 200 ms where
#: the process is large, so at least that.
_WORKER_START_S = 40e-3

#: A batch of tensors pickles to some hundred bytes each; more than this is data, and goes through a
#: pipe of 64 KiB (docs/rules/objects_in_queue.md).
MAX_PICKLE_BYTES = 2**20

#: A batch of which nothing is known is taken for a pair of inputs and labels.
_USUAL_TENSORS = 2.0


def per_batch_s(facts: RuleInputs) -> Between:
    """Return what receiving a batch takes whose tensors come in shared memory, s.

    Nothing else of it is pickled.
    """
    return _PER_BATCH_S.plus(_PER_TENSOR_S.times(tensors(facts))).plus(
        _PER_BYTE_S.times(_nbytes(facts))
    )


def at_best_s(facts: RuleInputs) -> Between:
    """Return what receiving the batches of a step takes at best, s.

    Their tensors come in shared memory, and nothing else is pickled.
    """
    return per_batch_s(facts).times(facts.batches_per_step)


def from_workers_s(facts: RuleInputs) -> Between:
    """Return what such a batch costs the main process more than one of its own, s.

    It receives the batch, and gives back its memory.
    """
    return per_batch_s(facts).plus(FREEING_S_PER_BYTE.times(_nbytes(facts)))


def freed_s(facts: RuleInputs) -> float:
    """Return the CPU seconds that the main thread takes to give back a batch's shared memory."""
    return FREEING_S_PER_BYTE.middle * shared_bytes(facts) + _FREEING_S_PER_TENSOR * tensors(facts)


def tensors(facts: RuleInputs) -> float:
    """Return how many tensors a batch has."""
    return _USUAL_TENSORS if facts.batch_tensors is None else facts.batch_tensors


def shared_bytes(facts: RuleInputs) -> float:
    """Return the bytes of a batch in shared memory.

    Its other tensors and arrays are pickled with the objects.
    """
    pickled = (facts.loader.pickle_bytes or 0.0) if facts.loader else 0.0
    return max(0.0, _nbytes(facts) - pickled)


def _nbytes(facts: RuleInputs) -> float:
    return (facts.loader.batch_bytes or 0.0) if facts.loader else 0.0


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
        _WORKER_START_S * workers if facts.loader_made_again and not num_workers(facts) else 0.0
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
