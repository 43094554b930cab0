"""A batch leaves its worker in ordinary memory, so it is copied into shared memory once more."""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import Change, Evidence, Factor, Finding, Severity, measured
from feedline.analysis.ledger.rule import CHEAPER, Rule, Time
from feedline.analysis.ledger.view.handover import MAX_PICKLE_BYTES
from feedline.analysis.ledger.view.input_wait import (
    RECEIVING,
    batch_s,
    input_wait,
    making_share,
    num_workers,
    severity,
)
from feedline.analysis.ledger.view.loader_call import place
from feedline.analysis.text.sentences import FUNCTION, SIZE, Sentence

_RULE_ID = "custom_collate"

_SAYS = Sentence(
    "{function} does not put its batches into shared memory: each is copied once more ({batch})",
    function=FUNCTION,
    batch=SIZE,
)
_FIX = "In the collate_fn, call torch.utils.data.default_collate for the large tensors."
_STACKS = "In a worker, default_collate stacks tensors in shared memory."

#: The most that was measured: default_collate, which writes straight into shared memory, took 24 ms
#: for 38.5 MB where a custom one took 135 ms.
_WON = 1 - 24 / 135

#: The same per byte: what a copy of that many can take. What transport costs beyond it is the
#: queue's own time, whoever collates.
_COPY_S_PER_BYTE = (135e-3 - 24e-3) / 38.5e6

#: What is usual: CPU seconds of a worker that collates 38.4 MB by default and by torch.stack
#: (benchmarks/collate_cost.py).
_USUALLY_LEFT = 32.4 / 53.9
_DEFAULT_S_PER_BYTE = 32.4e-3 / 38.4e6
_COPIED_S_PER_BYTE = 53.9e-3 / 38.4e6 - _DEFAULT_S_PER_BYTE


def _check(facts: RuleInputs) -> Finding | None:
    """See whether tensors that came through a worker's queue were in shared memory.

    They are where collate returned them so. It is silent where several loaders feed the steps.
    """
    loader = facts.loader
    if facts.several_loaders:
        return None
    if loader is None or not num_workers(facts) or {"shared", "objects"} & set(loader.flags):
        return None
    # default_collate shares what it stacks, and nothing collates batches that come whole
    if facts.setting("collate") == "default":
        return None
    if not loader.batch_bytes or (loader.pickle_bytes or 0) > MAX_PICKLE_BYTES:
        return None
    waits = input_wait(facts)
    moving_s = (
        waits.handover_s
        + waits.transport_s
        + waits.making_s * making_share(facts, "collate", "transport")
    )
    cost_s = min(_WON * moving_s, _COPY_S_PER_BYTE * loader.batch_bytes * facts.batches_per_step)
    weight = severity(facts, cost_s)
    if weight is Severity.INFO:
        return None
    name = str(facts.setting("collate") or "collate")
    return Finding(
        _RULE_ID,
        weight,
        message=_SAYS(function=name, batch=loader.batch_bytes),
        evidence=[
            Evidence("batch_bytes", "bytes per batch", loader.batch_bytes, "B"),
            Evidence("collate_s", "collating a batch", batch_s(facts, "collate"), "s"),
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
            Evidence("transport_s", RECEIVING, waits.transport_s, "s"),
            Evidence("handover_s", "late handover by the worker, per step", waits.handover_s, "s"),
        ],
        fix=_FIX,
        fix_more=[_STACKS],
        place=_line(facts, name) or place(facts),
        how_to_check="Run with default_collate on the same samples. If the loader is no faster, "
        "this finding is wrong.",
        cost_s=cost_s,
    )


def _line(facts: RuleInputs, name: str) -> str:
    """Return the line of the collate function at which most time is spent; empty: unknown."""
    rows = facts.ledger.sample.rows if facts.ledger and facts.ledger.sample else []
    return next((row.place for row in rows if row.where.startswith(f"collate/user/{name}/")), "")


def _change(facts: RuleInputs) -> Change:
    """Let both stages take the share that default_collate usually takes.

    They take no less than it usually takes for these bytes, and are spared no more than their copy
    usually takes.
    """
    nbytes = (facts.loader.batch_bytes if facts.loader else None) or 0.0
    takes_s = _batch_cpu_s(facts, "collate", "transport")
    least_s = max(_DEFAULT_S_PER_BYTE * nbytes, takes_s - _COPIED_S_PER_BYTE * nbytes)
    left = min(1.0, max(_USUALLY_LEFT, least_s / takes_s)) if takes_s else _USUALLY_LEFT
    return Change(stages=dict.fromkeys(("collate", "transport"), Factor(left, left)))


def _batch_cpu_s(facts: RuleInputs, *stages: str) -> float:
    """Return the CPU seconds per batch in these stages in its worker.

    Where they were not measured, it is all of the time there.
    """
    costs = [facts.costs[stage] for stage in stages if stage in facts.costs]
    taken_s = sum(cost.wall_s if cost.cpu_s is None else cost.cpu_s for cost in costs)
    return taken_s * (facts.throughput.batch_size or 0.0) / facts.batches_per_step


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    claims=("sample/transport", "sample/collate", "transport", "wait/in_transit", "wait/handover"),
    time=Time.NEEDLESS,  # a copy more
    lifts=CHEAPER | {"step", "ceiling"},
    of_input=True,
    action="collate without a copy",
)
