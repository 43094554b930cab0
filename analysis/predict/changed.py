"""A recorded training with a change applied: what the replay is given instead."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from feedline.analysis.ledger.change import Change, Factor, Refused
from feedline.analysis.predict.loader_replay import Setting, Task
from feedline.analysis.predict.recorded_input import RecordedInput

_ENDLESS = 1_000_000  # batches
#: Of work that follows a sleep: what it takes longer at most, and what a batch does that is made in
#: a worker (benchmarks/woken.py).
_MOST_LONGER, _WOKEN_S = 0.5, 0.1e-3
_MODELLED = ("num_workers", "prefetch_factor", "in_order", "persistent_workers")


def not_modelled(recorded: RecordedInput, change: Change) -> Refused | None:
    """Tell whether it sets something to a new value that the replay does not know."""
    given = change.settings
    unknown = sorted(
        name
        for name in given
        if name not in _MODELLED and given[name] != recorded.others_set.get(name)
    )
    if not unknown:
        return None
    return Refused(
        "not_modelled", f"the effect of {' and '.join(unknown)} on the loader is not modelled"
    )


def variants(recorded: RecordedInput, change: Change) -> Sequence[RecordedInput]:
    """Return the training with the change; ``recorded`` itself where nothing changes.

    Three changes give two trainings, a lower and an upper bound. Workers receive what the main
    process made: how long that takes is known only within bounds. Workers are removed: waking each
    other made the processes slower, by an unknown amount. Helper threads stop: they may have done a
    part of the work, or only spun. In the first training that work is gone, in the second the
    worker's own thread does it.
    """
    changed = _with_change(recorded, change)
    if changed.receiving_bounds and changed.setting.num_workers:
        return [replace(changed, receiving=bound) for bound in changed.receiving_bounds]
    if recorded.setting.num_workers and not changed.setting.num_workers:
        return [changed, _awake(changed)]
    if change.helper_threads or recorded.helpers == 1.0:
        return [changed]
    making = _factor(
        {name: (shares.cpu, shares.off_cpu) for name, shares in recorded.making.items()},
        change.stages,
    )
    return [
        changed,
        replace(
            changed,
            batches=[
                replace(_scaled(task, making, task.threads), threads=1.0)
                for task in _made(recorded, change)
            ],
        ),
    ]


def _with_change(recorded: RecordedInput, change: Change) -> RecordedInput:
    """Return the first of the ``variants``."""
    given, own = change.settings, {name: (share, share) for name, share in recorded.own.items()}
    helpers = recorded.helpers if change.helper_threads else 1.0
    making = _factor(
        {name: (shares.cpu, shares.off_cpu) for name, shares in recorded.making.items()},
        change.stages,
    )
    computing, transport = _factor(own, change.stages), change.stages.get("transport", Factor())
    into_shared = max(0.0, 1 - transport.cpu) if change.into_shared else 0.0
    setting = _setting(recorded.setting, given)
    freeing_s = recorded.freeing_s * into_shared - (
        0.0 if setting.num_workers else recorded.freed_s
    )
    # nothing is received any more, but the sampler draws as before
    drawing_s = (
        recorded.drawing_s if recorded.setting.num_workers and not setting.num_workers else 0.0
    )
    changed = replace(
        recorded,
        setting=setting,
        persistent=_stay(recorded, change),
        batches=[_scaled(task, making, helpers) for task in _made(recorded, change)],
        steps=[
            _longer(_scaled(task, computing, task.threads), freeing_s + drawing_s)
            for task in recorded.steps
        ],
        receiving=_scaled(recorded.receiving, _received(making, transport), 1.0),
        pinning=_scaled(recorded.pinning, change.stages.get("pin", Factor()), 1.0),
        unpacking=_scaled(recorded.unpacking, transport, 1.0),
        receiving_bounds=tuple(
            _scaled(bound, transport, 1.0) for bound in recorded.receiving_bounds
        ),
        handing_over=_longer(
            _scaled(recorded.handing_over, transport, 1.0), recorded.sharing_s * into_shared
        ),
        starts=replace(recorded.starts, counted=0, per_pass=_ENDLESS, to_its_end=False)
        if change.endless
        else recorded.starts,
        helpers=helpers,
        cpus=change.cpus or recorded.cpus,
        others=recorded.others if change.others else 0.0,
    )
    return recorded if vars(changed) == vars(recorded) else changed


def _awake(recorded: RecordedInput) -> RecordedInput:
    """Return the training whose work takes as little as without a sleep before it."""
    return replace(
        recorded,
        batches=[_shorter(task, _WOKEN_S) for task in recorded.batches],
        steps=[_shorter(task, recorded.woken_s) for task in recorded.steps],
    )


def _shorter(task: Task, most_s: float) -> Task:
    """Return work that takes so much less on its CPU, but not less than a part of it."""
    own_s = task.cpu_s / task.threads
    return _longer(task, -min(most_s, _MOST_LONGER * own_s))


def _stay(recorded: RecordedInput, change: Change) -> bool:
    """Tell whether workers stay between passes."""
    return change.one_loader or bool(change.settings.get("persistent_workers", recorded.persistent))


def _made(recorded: RecordedInput, change: Change) -> Sequence[Task]:
    """Return the batches as such workers make them."""
    if recorded.persistent or not recorded.staying or not _stay(recorded, change):
        return recorded.batches
    return [
        replace(task, cpu_s=max(0.0, task.cpu_s + recorded.staying * task.threads))
        for task in recorded.batches
    ]


def _longer(task: Task, cpu_s: float) -> Task:
    return replace(task, cpu_s=max(0.0, task.cpu_s + cpu_s * task.threads)) if cpu_s else task


def _received(making: Factor, transport: Factor) -> Factor:
    """Return what becomes of receiving a batch.

    What the main process waits for there is the worker's thread that sends, which probably waits
    for Python's lock while the other thread makes the next batch. If batches take longer to make,
    it is taken to wait as long as before.
    """
    return Factor(transport.cpu, transport.off_cpu * min(1.0, making.cpu))


def _setting(recorded: Setting, given: Mapping[str, int | bool]) -> Setting:
    return Setting(
        int(given.get("num_workers", recorded.num_workers)),
        int(given.get("prefetch_factor", recorded.prefetch_factor)),
        bool(given.get("in_order", recorded.in_order)),
    )


def _factor(shares: Mapping[str, tuple[float, float]], stages: Mapping[str, Factor]) -> Factor:
    """Return what becomes of the whole when its stages change.

    Args:
        shares: stage -> of the whole's CPU time and of its other time.
    """
    cpu, off = 1.0, 1.0
    for name in shares.keys() & stages.keys():
        (of_cpu, of_off), factor = shares[name], stages[name]
        cpu, off = cpu + of_cpu * (factor.cpu - 1), off + of_off * (factor.off_cpu - 1)
    return Factor(max(cpu, 0.0), max(off, 0.0))


def _scaled(task: Task, factor: Factor, threads: float) -> Task:
    """Return how long a task takes when its stages change.

    With other threads beside it, it takes its main thread as long as before, apart from the factor.
    """
    if factor == Factor() and threads == task.threads:
        return task
    return replace(
        task,
        cpu_s=task.cpu_s * factor.cpu * threads / task.threads,
        off_cpu_s=task.off_cpu_s * factor.off_cpu,
        threads=threads,
    )
