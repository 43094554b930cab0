"""What a change makes of a recorded training's throughput: the replay with it over the replay as it was, times the rate that was measured."""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean, stdev

from feedline.analysis.predict.change import Change, Factor, PredictedRate, Refused
from feedline.analysis.predict.loader_replay import NOTHING, Pass, Setting, Task
from feedline.analysis.predict.loader_replay import replay as replay_pass
from feedline.analysis.predict.recorded import RecordedInput, recorded_input

__all__ = ["RecordedInput", "predict", "recorded_input"]

BATCHES = 400  # that are replayed at least; a longer pass is continued at the rate of its middle
DRAWN = 160  # of each draw of the bootstrap
DRAWS = 16
BLOCK = 8  # neighboring batches or steps that are drawn together: what slows one often slows the next
TOLERANCE = 0.15  # by which the replay of the run as it was may miss its rate
MODEL_ERROR = 0.05  # standard deviation of predicted over measured in benchmarks/whatif_truth.py, on quiet machines
NORMAL_975 = 1.96
SETTINGS = {"num_workers", "prefetch_factor", "in_order", "persistent_workers", "pin_memory"}


def predict(recorded: RecordedInput, change: Change) -> PredictedRate | Refused:
    """Replay the training as it was, and with a change.

    Args:
        recorded: of ``recorded_input``.
        change: settings, stages, CPUs. It is assumed that what waits for a disk, a lock or a network takes as long as before, however
            many do so at once; a rate of the disk above the one that was seen is not predicted.
    """
    unknown = sorted(set(change.settings) - SETTINGS)
    if unknown:
        return Refused("unknown_setting", f"the replay does not know what {', '.join(unknown)} changes")
    whole = batches_per_s(recorded, BATCHES)
    seen = recorded.samples_per_s / recorded.samples_per_batch
    if abs(math.log(whole / seen)) > math.log1p(TOLERANCE):
        return Refused(
            "replay_disagrees",
            f"the replay of this run gives {whole * recorded.samples_per_batch:.3g} samples/s, and it made {recorded.samples_per_s:.3g}: "
            f"more than {TOLERANCE:.0%} apart, so something limits it that was not recorded",
        )
    changed = with_change(recorded, change)
    ratio = batches_per_s(changed, BATCHES) / whole
    if recorded.disk is not None and ratio > 1 + TOLERANCE:
        return Refused(
            "disk_bandwidth",
            f"it would read {recorded.disk * ratio / 1e6:.3g} MB/s from the disk, and {recorded.disk / 1e6:.3g} MB/s is all that it was seen to give",
        )
    drawn = [math.log(batches_per_s(draw(changed, dice), DRAWN) / batches_per_s(draw(recorded, again), DRAWN)) for dice, again in _dice()]
    spread = NORMAL_975 * math.hypot(stdev(drawn), MODEL_ERROR if changed != recorded else 0.0)
    after = recorded.samples_per_s * ratio
    return PredictedRate(recorded.samples_per_s, after, after * math.exp(-spread), after * math.exp(spread))


def _dice() -> list[tuple[random.Random, random.Random]]:
    return [(random.Random(seed), random.Random(seed)) for seed in range(DRAWS)]


def with_change(recorded: RecordedInput, change: Change) -> RecordedInput:
    """The same with other settings, stages and CPUs."""
    given = change.settings
    setting = Setting(
        int(given.get("num_workers", recorded.setting.num_workers)),
        int(given.get("prefetch_factor", recorded.setting.prefetch_factor)),
        bool(given.get("in_order", recorded.setting.in_order)),
    )
    helpers = recorded.helpers if change.helper_threads else 1.0
    making = _times({name: (shares.cpu, shares.off_cpu) for name, shares in recorded.making.items()}, change.stages)
    own = _times({name: (share, share) for name, share in recorded.own.items()}, change.stages)
    moving = change.stages.get("transport", Factor())
    return replace(
        recorded,
        setting=setting,
        persistent=bool(given.get("persistent_workers", recorded.persistent)),
        batches=[_scaled(task, making, helpers) for task in recorded.batches],
        steps=[_scaled(task, own, task.threads) for task in recorded.steps],
        receiving=_scaled(recorded.receiving, moving, 1.0),
        helpers=helpers,
        cpus=change.cpus or recorded.cpus,
        others=recorded.others if change.others else 0.0,
    )


def _times(shares: Mapping[str, tuple[float, float]], stages: Mapping[str, Factor]) -> Factor:
    """What becomes of the whole when its stages change."""
    cpu, off = 1.0, 1.0
    for name in shares.keys() & stages.keys():
        (of_cpu, of_off), factor = shares[name], stages[name]
        cpu, off = cpu + of_cpu * (factor.cpu - 1), off + of_off * (factor.off_cpu - 1)
    return Factor(max(cpu, 0.0), max(off, 0.0))


def _scaled(task: Task, factor: Factor, threads: float) -> Task:
    """A task whose threads become this many takes its main thread as long as before, apart from the factor."""
    if factor == Factor() and threads == task.threads:
        return task
    return replace(task, cpu_s=task.cpu_s * factor.cpu * threads / task.threads, off_cpu_s=task.off_cpu_s * factor.off_cpu, threads=threads)


def draw(recorded: RecordedInput, dice: random.Random) -> RecordedInput:
    """The same training with other batches and steps of the same kind: a bootstrap of blocks (Kuensch, Annals of Statistics 17(3), 1989)."""
    return replace(recorded, batches=_blocks(recorded.batches, dice), steps=_blocks(recorded.steps, dice))


def _blocks(tasks: Sequence[Task], dice: random.Random) -> list[Task]:
    number, found = len(tasks), list[Task]()
    while len(found) < DRAWN:
        begin = dice.randrange(number)
        found += [tasks[(begin + index) % number] for index in range(min(BLOCK, number))]
    return found


def batches_per_s(recorded: RecordedInput, batches: int) -> float:
    """Rate of the steps that count, as the report counts them.

    Args:
        batches: that are replayed at least.
    """
    begins, long = recorded.starts, min(recorded.starts.per_pass, batches)
    passes = max(1, math.ceil(batches / long))
    replayed = [_one_pass(recorded, number * long, long) for number in range(passes)]
    whole, first = fmean(total for total, _ in replayed), fmean(first for _, first in replayed)
    between = begins.ending_s + (begins.reset_s if recorded.persistent and recorded.setting.num_workers else 0.0)
    number = begins.per_pass
    return ((begins.counted + 1) * number - 1) / (begins.counted * (whole + between) + whole - first)


def _one_pass(recorded: RecordedInput, begin: int, long: int) -> tuple[float, float]:
    """Seconds from the beginning of a pass to the end of its last step, and of its first.

    Args:
        begin: index of its first batch among those recorded, which are gone through again and again.
        long: batches of it that are replayed.
    """
    begins, setting = recorded.starts, recorded.setting
    starts = setting.num_workers > 0 and not recorded.persistent and begins.counted > 0
    ahead = 0 if begins.to_its_end and long == begins.per_pass else setting.num_workers * setting.prefetch_factor
    replayed = replay_pass(
        setting,
        Pass(
            batches=_round(recorded.batches, begin, long + ahead),
            steps=_round(recorded.steps, begin, long),
            receiving=recorded.receiving,
            sending=recorded.sending,
            starting=begins.each if starts else NOTHING,
            births=begins.births if starts else NOTHING,
        ),
        recorded.cpus,
        recorded.others,
    )
    ends = replayed.ends_s
    early = min(ahead, long // 4)
    each = (ends[-1] - ends[early]) / (long - 1 - early) if long > 1 else ends[-1]
    return ends[-1] + each * (begins.per_pass - long), ends[0]


def _round(tasks: Sequence[Task], begin: int, number: int) -> list[Task]:
    return [tasks[(begin + index) % len(tasks)] for index in range(number)]
