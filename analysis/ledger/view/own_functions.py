"""Functions of the program's own code, in words."""

from collections.abc import Sequence
from dataclasses import dataclass

from feedline.analysis.formatting import seconds
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.view.handover_cost import FREEING_S_PER_BYTE, shared_bytes
from feedline.analysis.measure.model import OwnCode, OwnFunction

#: Functions and lines below this share of the step are not named.
NAMED_SHARE = 0.03


NAMED = 3


def parts(named: Sequence[OwnFunction]) -> str:
    """Return what each function takes, and where it is.

    ``1.3 ms in project (train.py:20), mostly in cat (train.py:8); 0.2 ms in lines 30 to 41
    (train.py)``.
    """
    return "; ".join(
        f"{seconds(function.s)} in {function.name}{f', mostly in {function.mainly}' if function.mainly else ''}"
        for function in named
    )


#: Of the step, all of it: below, something else is worth more, unless one function alone surely
#: takes _MIN_NAMED.
_MIN_SHARE = 0.20


#: What is named takes this share of the step, at least: the rest may be what torch does around the
#: calls that feedline records.
_MIN_NAMED = 0.05


#: A batch in shared memory that takes milliseconds to free.
_LARGE_BYTES = 8e6


#: Of all steps together: what feedline does once, such as counting operations, is a good part of a
#: shorter training.
_MIN_TRAINING_S = 1.0


#: Of a shorter step, a good part is what recording it costs, and how much is not known well enough.
_SHORT_S = 0.002


def _freed_bytes(run: RuleInputs) -> float:
    """Return the bytes of a batch in shared memory that the main thread frees.

    0.0: it is small, or another thread does.
    """
    if not run.setting("num_workers") or run.setting("pin_memory"):
        return 0.0
    nbytes = shared_bytes(run)
    return nbytes if nbytes >= _LARGE_BYTES else 0.0


@dataclass(frozen=True)
class NamedFunctions:
    """The program's own code between models, backward passes and updates, where it is notable.

    Attributes:
        own: all of it.
        functions: those that take most.
        took_s: seconds per step of these, without waiting for a CPU and freeing batches.
        queued: share (0 to 1) of this time that probably waits for a CPU.
        freed_bytes, freeing_s: of a batch in shared memory that the same lines free.
    """

    own: OwnCode
    functions: Sequence[OwnFunction]
    took_s: float
    queued: float
    freed_bytes: float
    freeing_s: float


def named_functions(run: RuleInputs) -> NamedFunctions | None:
    """Return the functions and lines that take much of the step.

    None: they take little, or were not looked at.
    """
    step, own = run.step, run.step.own_code
    queued = (
        0.0 if step.gpu_stages is not None else run.main_queued_share or 0.0
    )  # this code probably waits as often as the model does
    freed_bytes = _freed_bytes(run)
    freeing_s = FREEING_S_PER_BYTE.middle * freed_bytes
    if own is None or not own.functions:
        return None
    whole_s = (own.s - freeing_s) * (1 - queued)
    surely_s = (
        0.0 if freed_bytes else own.functions[0].low_s * (1 - queued)
    )  # what freeing takes is only estimated
    if whole_s < _MIN_SHARE * step.mean_s and surely_s < _MIN_NAMED * step.mean_s:
        return None
    if step.mean_s < _SHORT_S or step.mean_s * run.throughput.steps < _MIN_TRAINING_S:
        return None
    named = [function for function in own.functions if function.s >= NAMED_SHARE * step.mean_s][
        :NAMED
    ]
    took_s = (sum(function.s for function in named) - freeing_s) * (1 - queued)
    return (
        NamedFunctions(own, named, took_s, queued, freed_bytes, freeing_s)
        if took_s >= _MIN_NAMED * step.mean_s
        else None
    )
