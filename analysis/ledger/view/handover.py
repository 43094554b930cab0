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

import math

from feedline.analysis.formatting import sentence
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.view import cpus
from feedline.analysis.ledger.view.handover_cost import (
    WORKER_START_S,
    Between,
    from_workers_s,
    per_batch_s,
)
from feedline.analysis.ledger.view.input_wait import (
    batches_per_step,
    compute_s,
    input_wait,
    making_s,
    num_workers,
)

#: torch refuses them without workers; whether a default or the program set them is not recorded.
_WITHOUT_WORKERS = (
    "remove prefetch_factor, persistent_workers, timeout and multiprocessing_context if set"
)

#: Of making a batch: what workers that stay may take longer than new ones, and still be advised.
_MOST_DEARER = 0.1


def at_best_s(facts: RuleInputs) -> Between:
    """Return what receiving the batches of a step takes at best, s.

    Their tensors come in shared memory, and nothing else is pickled.
    """
    return per_batch_s(facts).times(batches_per_step(facts))


def receiving_s(facts: RuleInputs) -> Between:
    """Return t, what receiving the batches of a step takes, s.

    It is measured where there are workers, apart from giving back the memory of batches.
    """
    if not num_workers(facts):
        return from_workers_s(facts).times(batches_per_step(facts))
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
    first = taking + (making + receiving) / batches_per_step(facts) - receiving + starting
    return steady + max(0.0, first - steady) * _beginnings(facts)


def _beginnings(facts: RuleInputs) -> float:
    """Return how many passes over the loader begin per step that counts, without the first one."""
    return max(0, facts.epochs - 1) / max(facts.throughput.steps, 1)


def arguments(facts: RuleInputs, workers: int | None) -> dict[str, int | bool]:
    """Return what a DataLoader is given for that many workers; None: no number is advised.

    Of several passes over one loader they are kept: starting them for each takes longer than many a
    batch. Not if workers that stay make batches slower than new ones do, because these inherit what
    the main process's malloc has learned, nor if the program changes the dataset between passes,
    which they would not see. Of a stream that is not split between workers, each would yield all
    samples.
    """
    if workers is None or (workers > 1 and not facts.may_be_split):
        return {}
    passes = (
        facts.epochs > 1 and not facts.setting("persistent_workers") and not facts.loader_made_again
    )
    kept = passes and not dearer_if_they_stay(facts) and not facts.dataset_changes
    return {"num_workers": workers, **({"persistent_workers": True} if kept else {})}


def dearer_if_they_stay(facts: RuleInputs) -> bool:
    """Tell whether batches take much longer in workers that stay between passes."""
    batch_s = facts.workers.fetch_mean_s if facts.workers else None
    return facts.staying_s > _MOST_DEARER * (batch_s or math.inf)


def as_code(given: dict[str, int | bool]) -> str:
    """Return ``num_workers=2, persistent_workers=True``."""
    return ", ".join(f"{name}={value}" for name, value in given.items())


def _conditions(facts: RuleInputs, given: dict[str, int | bool]) -> dict[str, str]:
    """Return what has to be true of the program for each argument to leave the training as it is."""
    found = {}
    if given.get("in_order") is False:
        found["in_order"] = "the order of batches may change"
    if given.get("num_workers", 0) > 1 and facts.is_stream and (num_workers(facts) or 0) < 2:
        found["num_workers"] = (
            "each worker yields its own part of the iterable dataset (get_worker_info)"
        )
    if given.get("persistent_workers") is True:
        found["persistent_workers"] = "the program does not change the dataset between epochs"
    return found


def only_if(facts: RuleInputs, given: dict[str, int | bool]) -> str:
    """Return the conditions, to be appended to a line that sets these arguments.

    Each comes with its argument, where there are others. Empty: there are none.
    """
    named = {
        f"{name}={given[name]} " if len(given) > 1 else "": condition
        for name, condition in _conditions(facts, given).items()
    }
    return " and ".join(f"{name}only if {condition}" for name, condition in named.items())


def change(facts: RuleInputs, given: dict[str, int | bool]) -> str:
    """Return the new line that makes the loader: ``DataLoader(..., num_workers=3)  # now 1``.

    Where that line is, and what has to be true, are ``place`` and ``only_if``.
    """
    return call(facts, as_code(given), _now(facts, given))


def line_to_change(facts: RuleInputs, given: dict[str, int | bool]) -> str:
    """Return the same with its place and its condition in the comment, for a line of its own.

    ``DataLoader(..., num_workers=3) # now 1, train.py:31``.
    """
    now = ", ".join(filter(None, (_now(facts, given), place(facts))))
    comments = filter(None, (now, only_if(facts, given), _to_remove(given)))
    return call(facts, as_code(given), "; ".join(comments))


def without_workers(given: dict[str, int | bool]) -> list[str]:
    """Return what has to be removed where no workers are left; empty: nothing."""
    others = _to_remove(given)
    return [f"{sentence(others)}."] if others else []


def _to_remove(given: dict[str, int | bool]) -> str:
    if given.get("num_workers") != 0:
        return ""
    if "persistent_workers" in given:
        return _WITHOUT_WORKERS.replace(" persistent_workers,", "")
    return _WITHOUT_WORKERS


def in_words(facts: RuleInputs, given: dict[str, int | bool]) -> str:
    """Return the same for the middle of a text: ``Set num_workers=3 (now 1)``."""
    now = _now(facts, given)
    return f"Set {as_code(given)}{f' ({now})' if now else ''}"


def _now(facts: RuleInputs, given: dict[str, int | bool]) -> str:
    """Return ``now 1``, or ``now num_workers=1, persistent_workers=False``.

    It is empty where they are unknown.
    """
    now: dict[str, int | bool] = {
        name: value for name in given if isinstance(value := facts.setting(name), int)
    }
    values = as_code(now) if len(given) > 1 else "".join(map(str, now.values()))
    return f"now {values}" if values else ""


def call(facts: RuleInputs, arguments: str, now: str = "") -> str:
    """Return the same for any arguments."""
    kind = facts.loader.kind if facts.loader else "DataLoader"
    return f"{kind}(..., {arguments})" + (f"  # {now}" if now else "")


def place(facts: RuleInputs) -> str:
    """Return where the program makes its loader.

    ``train.py:31``, ``train.py:88 via transformers``; empty where that is unknown.
    """
    at, by = facts.setting("made_at"), facts.setting("made_by")
    return " ".join(filter(None, (f"{at}" if at else "", f"via {by}" if by else "")))


def _on_cpus_s(facts: RuleInputs, making: float, receiving: float) -> float:
    """Return how long the step would be if its CPUs, and those that are free, were always busy."""
    handing_over = 0.0 if num_workers(facts) else 2 * receiving  # both sides work on it
    use = facts.cpus
    if use is None or use.own is None or use.free is None:
        used = compute_s(facts) + making * (1 - (cpus.blocked_share(facts) or 0.0))
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


#: A batch of tensors pickles to some hundred bytes each; more than this is data, and goes through a
#: pipe of 64 KiB (docs/rules/objects_in_queue.md).
MAX_PICKLE_BYTES = 2**20
