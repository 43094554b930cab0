"""What a batch costs on its way from a worker, where all that can be shared is shared.

Rules and predictions use this cost for a loader that does not have workers yet.
"""

from dataclasses import dataclass

from feedline.analysis.ledger.facts import RuleInputs


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
WORKER_START_S = 40e-3

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
