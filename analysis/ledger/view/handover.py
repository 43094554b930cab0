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
    num_workers,
)

#: torch refuses them without workers; whether a default or the program set them is not recorded.
WITHOUT_WORKERS = (
    "remove prefetch_factor, persistent_workers, timeout and multiprocessing_context if set"
)

#: Of making a batch: what workers that stay may take longer than new ones, and still be advised.
_MOST_DEARER = 0.1


def at_best_s(run: RuleInputs) -> Between:
    """Return what receiving the batches of a step takes at best, s.

    Their tensors come in shared memory, and nothing else is pickled.
    """
    return per_batch_s(run).times(batches_per_step(run))


def receiving_s(run: RuleInputs) -> Between:
    """Return t, what receiving the batches of a step takes, s.

    It is measured where there are workers, apart from giving back the memory of batches.
    """
    if not num_workers(run):
        return from_workers_s(run).times(batches_per_step(run))
    measured = input_wait(run).transport_s
    return Between(measured, measured)


def making_s(run: RuleInputs) -> float | None:
    """Return S, what making the batches of a step one after another takes, s; None: not measured."""
    if num_workers(run) == 0:
        return input_wait(run).making_s
    batch_s = run.workers.fetch_mean_s if run.workers else None
    return batch_s * batches_per_step(run) if batch_s else None


def alone_s(run: RuleInputs) -> float | None:
    """Return step(0): the main process makes every batch itself."""
    making = making_s(run)
    return (
        None
        if making is None
        else max(compute_s(run) + input_wait(run).sampler_s + making, run.step.gpu_s)
    )


def with_workers_s(run: RuleInputs, workers: int, receiving: float) -> float | None:
    """Return step(W), for a time to receive the batches of a step."""
    making = making_s(run)
    if making is None or workers < 1:
        return None
    taking = compute_s(run) + input_wait(run).sampler_s + receiving
    steady = max(
        (making + receiving) / workers,
        taking,
        run.step.gpu_s,
        _on_cpus_s(run, making, receiving),
    )
    starting = WORKER_START_S * workers if run.loader_made_again and not num_workers(run) else 0.0
    first = taking + (making + receiving) / batches_per_step(run) - receiving + starting
    return steady + max(0.0, first - steady) * _beginnings(run)


def _beginnings(run: RuleInputs) -> float:
    """Return how many passes over the loader begin per step that counts, without the first one."""
    return max(0, run.epochs - 1) / max(run.throughput.steps, 1)


def arguments(run: RuleInputs, workers: int | None) -> dict[str, int | bool]:
    """Return what a DataLoader is given for that many workers; None: no number is advised.

    Of several passes over one loader they are kept: starting them for each takes longer than many a
    batch. Not if workers that stay make batches slower than new ones do, because these inherit what
    the main process's malloc has learned, nor if the program changes the dataset between passes,
    which they would not see. Of a stream that is not split between workers, each would yield all
    samples.
    """
    if workers is None or (workers > 1 and not run.may_be_split):
        return {}
    passes = run.epochs > 1 and not run.setting("persistent_workers") and not run.loader_made_again
    kept = passes and not dearer_if_they_stay(run) and not run.dataset_changes
    return {"num_workers": workers, **({"persistent_workers": True} if kept else {})}


def dearer_if_they_stay(run: RuleInputs) -> bool:
    """Tell whether batches take much longer in workers that stay between passes."""
    batch_s = run.workers.fetch_mean_s if run.workers else None
    return run.staying_s > _MOST_DEARER * (batch_s or math.inf)


def as_code(given: dict[str, int | bool]) -> str:
    """Return ``num_workers=2, persistent_workers=True``."""
    return ", ".join(f"{name}={value}" for name, value in given.items())


def _conditions(run: RuleInputs, given: dict[str, int | bool]) -> dict[str, str]:
    """Return what has to be true of the program for each argument to leave the training as it is."""
    conditions = {}
    if given.get("in_order") is False:
        conditions["in_order"] = "the order of batches may change"
    if given.get("num_workers", 0) > 1 and run.is_stream and (num_workers(run) or 0) < 2:
        conditions["num_workers"] = (
            "each worker yields its own part of the iterable dataset (get_worker_info)"
        )
    if given.get("persistent_workers") is True:
        conditions["persistent_workers"] = "the program does not change the dataset between epochs"
    return conditions


def only_if(run: RuleInputs, given: dict[str, int | bool]) -> str:
    """Return the conditions, to be appended to a line that sets these arguments.

    Each comes with its argument, where there are others. Empty: there are none.
    """
    named = {
        f"{name}={given[name]} " if len(given) > 1 else "": condition
        for name, condition in _conditions(run, given).items()
    }
    return " and ".join(f"{name}only if {condition}" for name, condition in named.items())


def setting(run: RuleInputs, given: dict[str, int | bool]) -> str:
    """Return the settings as an instruction, with the conditions that they have.

    ``Set num_workers=2 and, if the program does not change the dataset between epochs,
    persistent_workers=True``.
    """
    needs = _conditions(run, given)
    parts = [f"if {needs[name]}, {as_code({name: given[name]})}" for name in given if name in needs]
    free = as_code({name: value for name, value in given.items() if name not in needs})
    if free:
        return f"Set {' and, '.join([free, *parts])}"
    return (
        f"If {needs[next(iter(given))]}, set {as_code(given)}"
        if len(given) == 1
        else f"Set, {'; and '.join(parts)}"
    )


def change(run: RuleInputs, given: dict[str, int | bool]) -> str:
    """Return the line to change: ``DataLoader(..., num_workers=3) # now 1, train.py:31``."""
    called = call(run, as_code(given), _now(run, given), only_if(run, given))
    if given.get("num_workers") != 0:
        return called
    others = (
        WITHOUT_WORKERS.replace(" persistent_workers,", "")
        if "persistent_workers" in given
        else WITHOUT_WORKERS
    )
    return f"{called}{'; ' if '#' in called else '  # '}{others}"


def in_words(run: RuleInputs, given: dict[str, int | bool]) -> str:
    """Return the change for the middle of a text: ``Set num_workers=3 (now 1, train.py:31)``."""
    where = ", ".join(filter(None, (_now(run, given), place(run))))
    return f"{setting(run, given)}{f' ({where})' if where else ''}"


def _now(run: RuleInputs, given: dict[str, int | bool]) -> str:
    """Return ``now 1``, or ``now num_workers=1, persistent_workers=False``.

    It is empty where they are unknown.
    """
    now: dict[str, int | bool] = {
        name: value for name in given if isinstance(value := run.setting(name), int)
    }
    values = as_code(now) if len(given) > 1 else "".join(map(str, now.values()))
    return f"now {values}" if values else ""


def call(run: RuleInputs, arguments: str, now: str = "", condition: str = "") -> str:
    """Return the line to change, with any arguments.

    The place is left out where the recorder did not see the call.
    """
    kind = run.loader.kind if run.loader else "DataLoader"
    comment = "; ".join(filter(None, (", ".join(filter(None, (now, place(run)))), condition)))
    return f"{kind}(..., {arguments})" + (f"  # {comment}" if comment else "")


def place(run: RuleInputs) -> str:
    """Return where the program makes its loader.

    ``train.py:31``, ``train.py:88 via transformers``; empty where that is unknown.
    """
    at, by = run.setting("made_at"), run.setting("made_by")
    return " ".join(filter(None, (f"{at}" if at else "", f"via {by}" if by else "")))


def _on_cpus_s(run: RuleInputs, making: float, receiving: float) -> float:
    """Return how long the step would be if its CPUs, and those that are free, were always busy."""
    handing_over = 0.0 if num_workers(run) else 2 * receiving  # both sides work on it
    use = run.cpus
    if use is None or use.own is None or use.free is None:
        used = compute_s(run) + making * (1 - (cpus.blocked_share(run) or 0.0))
        return (used + handing_over) / max(run.effective_cpus, 1e-9)
    return (use.own * run.step.mean_s + handing_over) / max(use.own + use.free, 1e-9)


def crowded(run: RuleInputs) -> bool:
    """Tell whether other programs leave the training less than one CPU.

    Which number of workers is best is then up to the scheduler. Where that was not sampled, a main
    thread that waits for a CPU is a sign of it.
    """
    if run.cpus is None or run.cpus.others is None:
        return (run.main_runqueue_share or 0.0) > cpus.MAX_RUNQUEUE_SHARE
    return run.cpus.allowed - run.cpus.others < 1


#: A batch of tensors pickles to some hundred bytes each; more than this is data, and goes through a
#: pipe of 64 KiB (docs/rules.md).
MAX_PICKLE_BYTES = 2**20
