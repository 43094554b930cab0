"""Throughput of a recorded training with a change: the measured rate times the replay with the change over the replay as it was."""

import math
import random
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from statistics import stdev

from feedline.analysis.predict.change import Change, Factor, PredictedRate, Refused
from feedline.analysis.predict.loader_replay import Setting, Task
from feedline.analysis.predict.of_run import recorded_input
from feedline.analysis.predict.recorded import RecordedInput

__all__ = ["RecordedInput", "predict", "recorded_input"]

BATCHES = 320  # that are replayed at least
DRAWS = 12  # of the bootstrap
OF_DRAW = 120  # batches of each
TOLERANCE = 0.15  # by which the replay of the run as it was may miss its rate
MODEL_ERROR = 0.05  # standard deviation of predicted over measured in benchmarks/whatif_truth.py
NORMAL_975 = 1.96
MODELLED = ("num_workers", "prefetch_factor", "in_order", "persistent_workers")


def predict(recorded: RecordedInput, change: Change, interval: bool = True) -> PredictedRate | Refused:
    """Replay the training as it was, and with a change.

    Args:
        recorded: of ``recorded_input``.
        change: settings, stages, CPUs. What waits for a disk, a lock or a network is taken to wait as long as before, however much does so
            at once; a disk that would have to give more than it was seen to give is refused.
        interval: False: spare the bootstrap; low and high are then the prediction itself.
    """
    changed = with_change(recorded, change)
    if isinstance(changed, Refused):
        return changed
    whole, seen = _as_it_was(recorded), recorded.samples_per_s / recorded.samples_per_batch
    if abs(math.log(whole / seen)) > math.log1p(TOLERANCE):
        return Refused(
            "replay_disagrees",
            f"replaying the run as it was gives {whole * recorded.samples_per_batch:.3g} samples/s, but {recorded.samples_per_s:.3g} were "
            "measured: something that was not recorded limits it",
        )
    ratio = changed.batches_per_s(BATCHES) / whole
    reads = change.stages.get("read", Factor()).off_cpu * ratio
    if recorded.disk is not None and reads > 1 + TOLERANCE:
        return Refused(
            "disk_bandwidth",
            f"it would read {recorded.disk * reads / 1e6:.3g} MB/s from the disk; whether that gives more than the "
            f"{recorded.disk / 1e6:.3g} MB/s that were read is unknown",
        )
    after = recorded.samples_per_s * ratio
    spread = _spread(recorded, changed) if interval and changed is not recorded else 0.0
    return PredictedRate(recorded.samples_per_s, after, after * math.exp(-spread), after * math.exp(spread))


def _draws(recorded: RecordedInput) -> list[float]:
    """Batches per second, with other batches and steps of the same kind."""
    return [recorded.drawn(random.Random(seed), OF_DRAW).batches_per_s(OF_DRAW) for seed in range(DRAWS)]


@lru_cache(maxsize=4)
def _as_it_was(recorded: RecordedInput) -> float:
    return recorded.batches_per_s(BATCHES)


@lru_cache(maxsize=4)
def _draws_as_it_was(recorded: RecordedInput) -> list[float]:
    return _draws(recorded)


def _spread(recorded: RecordedInput, changed: RecordedInput) -> float:
    """Half of the 95 % interval, as a logarithm: other batches and steps of the same kind, and the model's error."""
    by_chance = stdev(math.log(after / before) for after, before in zip(_draws(changed), _draws_as_it_was(recorded)))
    return NORMAL_975 * math.hypot(by_chance, MODEL_ERROR)


def with_change(recorded: RecordedInput, change: Change) -> RecordedInput | Refused:
    """The same with other settings, stages and CPUs; ``recorded`` itself where nothing changes."""
    given = change.settings
    unknown = [name for name in given if name not in MODELLED and given[name] != recorded.others_set.get(name)]
    if unknown:
        return Refused("not_modelled", f"the replay does not know what another {' and '.join(sorted(unknown))} does")
    setting = Setting(
        int(given.get("num_workers", recorded.setting.num_workers)),
        int(given.get("prefetch_factor", recorded.setting.prefetch_factor)),
        bool(given.get("in_order", recorded.setting.in_order)),
    )
    helpers = recorded.helpers if change.helper_threads else 1.0
    making = _times({name: (shares.cpu, shares.off_cpu) for name, shares in recorded.making.items()}, change.stages)
    own = _times({name: (share, share) for name, share in recorded.own.items()}, change.stages)
    transport = change.stages.get("transport", Factor())
    changed = replace(
        recorded,
        setting=setting,
        persistent=bool(given.get("persistent_workers", recorded.persistent)),
        batches=[_scaled(task, making, helpers) for task in recorded.batches],
        steps=[_scaled(task, own, task.threads) for task in recorded.steps],
        receiving=_scaled(recorded.receiving, transport, 1.0),
        handing_over=_scaled(recorded.handing_over, transport, 1.0),
        helpers=helpers,
        cpus=change.cpus or recorded.cpus,
        others=recorded.others if change.others else 0.0,
    )
    return recorded if vars(changed) == vars(recorded) else changed


def _times(shares: Mapping[str, tuple[float, float]], stages: Mapping[str, Factor]) -> Factor:
    """What becomes of the whole when its stages change."""
    cpu, off = 1.0, 1.0
    for name in shares.keys() & stages.keys():
        (of_cpu, of_off), factor = shares[name], stages[name]
        cpu, off = cpu + of_cpu * (factor.cpu - 1), off + of_off * (factor.off_cpu - 1)
    return Factor(max(cpu, 0.0), max(off, 0.0))


def _scaled(task: Task, factor: Factor, threads: float) -> Task:
    """With other threads beside it, a task takes its main thread as long as before, apart from the factor."""
    if factor == Factor() and threads == task.threads:
        return task
    return replace(task, cpu_s=task.cpu_s * factor.cpu * threads / task.threads, off_cpu_s=task.off_cpu_s * factor.off_cpu, threads=threads)
