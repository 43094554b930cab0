"""Arrays or large objects are pickled through the workers' queue.

Tensors are handed over in shared memory.
"""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import Change, Evidence, Factor, Finding, Severity, measured
from feedline.analysis.ledger.rule import CHEAPER, Rule
from feedline.analysis.ledger.view.handover import MAX_PICKLE_BYTES
from feedline.analysis.ledger.view.input_wait import (
    RECEIVING,
    batch_s,
    input_wait,
    making_share,
    num_workers,
    severity,
)
from feedline.analysis.text.sentences import SIZE, Sentence

_RULE_ID = "objects_in_queue"

_SAYS = Sentence(
    "{pickled} per batch are pickled and sent through the workers' queue instead of through shared "
    "memory",
    pickled=SIZE,
)
_TENSORS = (
    "Return tensors, which are passed in shared memory: convert arrays in the worker "
    "(torch.from_numpy, default_collate)."
)
_OBJECTS = "Encode or drop large lists, dicts and strings."


#: Measured once: the same 38.5 MB took 447 ms as numpy arrays and 24 ms as tensors in shared
#: memory.
_WON = 1 - 24 / 447

#: The same per byte: what pickling that many, and reading them from a pipe, can take.
_PICKLE_S_PER_BYTE = (447e-3 - 24e-3) / 38.5e6


def _check(facts: RuleInputs) -> Finding | None:
    """Look at how long the pickle of a batch is, and what sending and reading it costs."""
    loader = facts.loader
    if (
        loader is None
        or not num_workers(facts)
        or loader.pickle_bytes is None
        or loader.pickle_bytes <= MAX_PICKLE_BYTES
    ):
        return None
    sending_s = (
        input_wait(facts).handover_s
        + input_wait(facts).transport_s
        + input_wait(facts).making_s * making_share(facts, "transport")
    )
    cost_s = min(
        _WON * sending_s, _PICKLE_S_PER_BYTE * loader.pickle_bytes * facts.batches_per_step
    )
    weight = severity(facts, cost_s)
    if weight is Severity.INFO:
        return None
    return Finding(
        _RULE_ID,
        weight,
        message=_SAYS(pickled=loader.pickle_bytes),
        evidence=[
            Evidence("pickle_bytes", "pickled bytes per batch", loader.pickle_bytes, "B"),
            *measured(
                [
                    (
                        "batch_s",
                        "making a batch",
                        facts.workers.fetch_mean_s if facts.workers else None,
                        "s",
                    )
                ]
            ),
            Evidence("transport_s", RECEIVING, input_wait(facts).transport_s, "s"),
        ],
        fix=_TENSORS,
        fix_more=[_OBJECTS],
        how_to_check="Run with batches that hold only tensors. If transport is no faster, this "
        "finding is wrong.",
        cost_s=cost_s,
    )


def _change(facts: RuleInputs) -> Change:
    """Let the transport take what it took for tensors when measured.

    It is spared no more than pickling these bytes took then.
    """
    pickled_s = _PICKLE_S_PER_BYTE * ((facts.loader.pickle_bytes if facts.loader else None) or 0.0)
    takes_s = batch_s(facts, "transport")
    left = max(1 - _WON, 1 - pickled_s / takes_s) if takes_s else 1 - _WON
    return Change(stages={"transport": Factor(left, left)}, into_shared=True)


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    claims=("sample/transport", "transport", "wait/in_transit", "wait/handover"),
    lifts=CHEAPER | {"step", "ceiling"},
    of_input=True,
    action="send tensors from workers",
)
