"""Throughput of a recorded training with a change.

It is the measured rate times the replay with the change over the replay as it was.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from statistics import NormalDist, stdev

from feedline.analysis.ledger.finding import Change, Factor, PredictedRate, Refused
from feedline.analysis.predict.loader_replay import NOTHING, Setting, Task
from feedline.analysis.predict.of_run import recorded_input
from feedline.analysis.predict.recorded_input import RecordedInput
from feedline.analysis.predict.starts import WARMING
from feedline.analysis.text.formatting import number, share, size

_ENDLESS = 1_000_000  # batches
#: Of work that follows a sleep: what it takes longer at most, and what a batch does that is made in
#: a worker (benchmarks/woken.py).
_MOST_LONGER, _WOKEN_S = 0.5, 0.1e-3
_MODELLED = ("num_workers", "prefetch_factor", "in_order", "persistent_workers")
__all__ = ["RecordedInput", "predict", "recorded_input"]
_BATCHES = 320  # that are replayed at least
_DRAWS = 12  # of the bootstrap
_OF_DRAW = 120  # batches of each
_TOLERANCE = 0.15  # by which the replay of the run as it was may miss its rate
# share of the making of batches that may be waiting for a lock where more workers are predicted
_MOST_LOCKED = 0.1
#: Standard deviation of replayed over measured, as a logarithm, where the same work is done by
#: other workers (docs/measured/whatif.md).
_MODEL_ERROR = 0.05
#: What is added to it, per logarithm of the gain, where work falls away: below and above what is
#: replayed. What remains was a small part of what was measured, and is mostly less than it seemed:
#: it had waited for what falls away (docs/measured/faults.md).
_REMOVAL_ERROR = 0.1, 0.3
#: Upper limit of that logarithm for starts of workers that fall away: the batches between them were
#: measured without any start, so the length of a start adds no uncertainty. Passes so short that
#: all their batches are first ones of a worker are an exception.
_MOST_OF_STARTS = 1.0
_NORMAL_975 = 1.96


def _not_modelled(recorded: RecordedInput, change: Change) -> Refused | None:
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


def _variants(recorded: RecordedInput, change: Change) -> Sequence[RecordedInput]:
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
    cpus = change.cpus or recorded.cpus
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
        cpus=cpus,
        others=recorded.others if change.others else 0.0,
        kept=recorded.kept * min(1.0, cpus / recorded.cpus) if change.others else 0.0,
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


def predict(
    recorded: RecordedInput, change: Change, interval: bool = True
) -> PredictedRate | Refused:
    """Replay the training as it was, and with a change.

    The prediction is the median of where the rate may lie, which is more than what is replayed
    where work falls away: the replay is more often too slow then than too fast.

    Args:
        recorded: of ``recorded_input``.
        change: settings, stages, CPUs. What waits for a disk, a lock or a network is taken to wait
            as long as before, however much does so at once; a disk that would have to give more
            than it was seen to give is refused.
        interval: False: spare the bootstrap; low and high are then the prediction itself.
    """
    refused = (
        _not_modelled(recorded, change) or _invalid(recorded) or _behind_a_lock(recorded, change)
    )
    if refused is not None:
        return refused
    changed, before = _variants(recorded, change), recorded.samples_per_s
    ratios = sorted(variant.batches_per_s(_BATCHES) / _as_it_was(recorded) for variant in changed)
    ratio = math.sqrt(ratios[0] * ratios[-1])
    refused = _beyond_the_disk(recorded, change, ratio)
    if refused is not None:
        return refused
    removed = min(abs(math.log(ratio)), max(_removed(recorded, variant) for variant in changed))
    after = before * ratio * math.exp(_median(*_errors(removed)))
    if not interval:
        return PredictedRate(before, after, after, after)
    below, above = _spread(recorded, changed, removed) if changed[0] is not recorded else (0.0, 0.0)
    most = math.inf
    if not change.stages.keys() & recorded.own.keys():  # it is the input that changes
        most = max(_at_most(recorded, variant) for variant in changed)
    high = min(ratios[-1] * math.exp(above), most)
    return PredictedRate(
        before, after, before * ratios[0] * math.exp(-below), max(after, before * high)
    )


def _at_most(recorded: RecordedInput, changed: RecordedInput) -> float:
    """Return how many times as fast it is at most, whatever becomes of its input.

    That is without any, where the rest of the step may take somewhat less than was measured.
    """
    without = replace(
        changed,
        setting=replace(changed.setting, num_workers=0),
        batches=[NOTHING],
        pinning=NOTHING,
    )
    times = without.batches_per_s(_BATCHES) / _as_it_was(recorded)
    error, _ = _errors(abs(math.log(times)))
    return times * math.exp(_NORMAL_975 * error)


def _invalid(recorded: RecordedInput) -> Refused | None:
    """Tell whether the replay of the training as it was misses its rate."""
    replayed = _as_it_was(recorded) * recorded.samples_per_batch
    if abs(math.log(replayed / recorded.samples_per_s)) <= math.log1p(_TOLERANCE):
        return None
    return Refused(
        "replay_disagrees",
        f"replaying the unchanged run gives {number(replayed)} samples/s, but "
        f"{number(recorded.samples_per_s)} were measured, so "
        "predictions would not hold for this training",
    )


def _behind_a_lock(recorded: RecordedInput, change: Change) -> Refused | None:
    """Tell whether more workers would wait for a lock that they already wait for."""
    if (
        change.settings.get("num_workers", 0) <= recorded.setting.num_workers
        or recorded.locked <= _MOST_LOCKED
    ):
        return None
    return Refused(
        "lock",
        f"{share(recorded.locked)} of the time in which batches are made is spent waiting for a "
        f"lock; how long more workers would wait for "
        "it is unknown",
    )


def _beyond_the_disk(recorded: RecordedInput, change: Change, ratio: float) -> Refused | None:
    """Tell whether the disk would have to give more than it was seen to give."""
    more = change.stages.get("read", Factor()).off_cpu * ratio
    if recorded.disk is None or more <= 1 + _TOLERANCE:
        return None
    return Refused(
        "disk_bandwidth",
        f"with these settings, the disk would have to deliver {size(recorded.disk * more)}/s; "
        f"whether it can deliver more than the {size(recorded.disk)}/s that were read is unknown",
    )


def _removed(recorded: RecordedInput, changed: RecordedInput) -> float:
    """Return the logarithm of how many times as much is done as with the change.

    It counts starts as far as it is uncertain what is left without them.
    """
    before_s, work_s, restart_s = recorded.work_s(), changed.work_s(), changed.restart_s()
    if work_s <= 0:
        return math.inf
    starts = max(0.0, math.log((before_s + recorded.restart_s()) / (before_s + restart_s)))
    if recorded.starts.per_pass > WARMING * recorded.setting.num_workers:
        starts = min(starts, _MOST_OF_STARTS)
    return starts + max(0.0, math.log((before_s + restart_s) / (work_s + restart_s)))


def _errors(removed: float, by_chance: float = 0.0) -> tuple[float, float]:
    """Return how far the measured rate deviates below and above the replayed one.

    They are standard deviations of logarithms.
    """
    below, above = (
        math.hypot(by_chance, _MODEL_ERROR, error * removed) for error in _REMOVAL_ERROR
    )
    return below, above


def _median(below: float, above: float) -> float:
    """Return the median of a split normal distribution around 0.

    Of its standard deviations, the second is not the smaller one.
    """
    return above * NormalDist().inv_cdf((3 * above - below) / (4 * above))


def _spread(
    recorded: RecordedInput, changed: Sequence[RecordedInput], removed: float
) -> tuple[float, float]:
    """Return how far the 95 % interval reaches below and above what is replayed, as logarithms.

    It holds other batches and steps of the same kind, and the model's error.
    """
    by_chance = stdev(
        math.log(after / before)
        for after, before in zip(_draws(changed[0]), _draws_as_it_was(recorded))
    )
    below, above = _errors(removed, by_chance)
    return _NORMAL_975 * below, _NORMAL_975 * above


def _draws(recorded: RecordedInput) -> list[float]:
    """Return batches per second, with other batches and steps of the same kind."""
    return [
        recorded.drawn(random.Random(seed), _OF_DRAW).batches_per_s(_OF_DRAW)
        for seed in range(_DRAWS)
    ]


@lru_cache(maxsize=4)
def _as_it_was(recorded: RecordedInput) -> float:
    return recorded.batches_per_s(_BATCHES)


@lru_cache(maxsize=4)
def _draws_as_it_was(recorded: RecordedInput) -> list[float]:
    return _draws(recorded)
