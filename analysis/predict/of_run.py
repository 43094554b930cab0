"""From a recorded run to what the replay of its loader takes.

That is each batch's and each step's work, free of what it waited for.
"""

from dataclasses import dataclass, replace

import numpy as np

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import Refused
from feedline.analysis.ledger.view.handover import (
    FREEING_S_PER_BYTE,
    SHARING_S_PER_TENSOR,
    freed_s,
    from_workers_s,
    per_batch_s,
    shared_bytes,
    tensors,
)
from feedline.analysis.measure.costs import accounted_cpu_s
from feedline.analysis.measure.rank_metrics import RankMetrics
from feedline.analysis.measure.stages import MAKING_STAGES
from feedline.analysis.predict.loader_replay import NOTHING, Setting, Task
from feedline.analysis.predict.main_process import Main, main_process
from feedline.analysis.predict.recorded_input import RecordedInput, Shares
from feedline.analysis.predict.starts import Starts, starts, warm_up, warming
from feedline.profiler.events import Stage
from feedline.profiler.store.record_columns import Records

_MIN_BATCHES = 16  # batches, and steps: fewer say little of how they differ
_MANY = 160  # batches that are replayed to learn how long one takes to be made
# of other programs' threads beside the training's
_WEIGHTS = (1.0, 0.75, 0.5, 0.35, 0.25, 0.15, 0.1, 0.05, 0.0)
_CLOSE = 1.02  # how much longer than recorded a batch may take to be made
# sys.getswitchinterval(): after so long, a thread has to leave Python's lock to another
_SWITCH_INTERVAL_S = 5e-3
# that a worker's thread takes to hand over a tensor's file: accepting, two challenges, sending it
_LOCKS_PER_TENSOR = 7
# of what is waited for workers while batches are received: less is not told from other waiting
_LOCKED = 0.5
_LOCK_ERROR_S = 0.1e-3
# in which a batch computes and waits in turns: more change the replay by less than 1 %
_MOST_PIECES = 6
_STATEFUL = "StatefulDataLoader"  # of torchdata: it dispatches like torch's
_NICED = 5  # nice value from which on a thread weighs at most a third of a usual one
_FEW_BYTES = 1e6  # per second: any disk has room for more
_SENDING_S = 0.3e-3  # through the queue's pipe, besides pickling
_PICKLING_S = 0.1e-3  # CPU time per batch whose tensors are in shared memory
# CPU time of a worker that collates into new shared memory (benchmarks/whatif_truth.py)
_SHARING_S_PER_BYTE = 0.8e-9


def recorded_input(
    rank: RankMetrics, facts: RuleInputs, at_own_locks: bool = False
) -> RecordedInput | Refused:
    """Read what the replay needs.

    Args:
        rank: of a recorded run.
        facts: of the same rank.
        at_own_locks: the locks at which samples wait are those of a library's threads, so other
            workers do not wait for them.
    """
    unfit = _unfit(rank, facts)
    if unfit is not None:
        return unfit
    persistent = bool(facts.setting("persistent_workers")) and not facts.loader_made_again
    fetches = _made(rank, persistent)
    too_few = _too_few(rank, len(fetches))
    if too_few is not None:
        return too_few
    recorded = _read(rank, facts, fetches, persistent, at_own_locks)
    return _delayed(_locking(recorded, tensors(facts)), fetches)


def _read(
    rank: RankMetrics, facts: RuleInputs, fetches: Records, persistent: bool, at_own_locks: bool
) -> RecordedInput:
    """Return the work of batches and steps as recorded; batches wait for nothing yet."""
    setting = _setting(facts)
    begins = starts(rank, setting.num_workers, persistent)
    pinning, unpacking = _in_pinning_thread(facts, setting.num_workers)
    main = main_process(
        rank,
        facts,
        setting.num_workers,
        0.0 if persistent else _restarting_s(begins, setting.num_workers),
        pinning.cpu_s + unpacking.cpu_s,
    )
    if setting.num_workers:
        handover = _measured_handover(rank, facts, main, fetches)
    else:
        handover = _estimated_handover(facts)
    helpers, rate = _helpers(facts), facts.throughput.samples_per_s or 0.0
    samples = (facts.throughput.batch_size or 1.0) / main.batches
    return RecordedInput(
        setting=setting,
        persistent=persistent,
        others_set=facts.loader.settings if facts.loader else {},
        batches=_batches(fetches, helpers, samples, handover.shared_s),
        steps=main.tasks(),
        receiving=handover.receiving,
        receiving_bounds=handover.receiving_bounds,
        pinning=pinning,
        unpacking=unpacking,
        gpu_s=facts.step.gpu_s / main.batches,
        drawing_s=facts.step.stages.get("sampler", 0.0) / main.batches,
        handing_over=Task(handover.worker_s, 0.0),
        sharing_s=_more_to_share_s(facts, samples),
        freeing_s=FREEING_S_PER_BYTE.middle * min(_loader_bytes(facts)),
        freed_s=handover.freed_s,
        woken_s=handover.woken_s,
        sending=_SENDING_S,
        starts=replace(begins, main_s=main.starting_s * begins.per_pass),
        making=_making(facts),
        own=main.shares,
        helpers=helpers,
        cpus=facts.effective_cpus,
        others=0.0 if _yields(rank) else _others(facts),
        kept=_held_by_others(facts) if _yields(rank) else 0.0,
        disk=_disk(facts, rate),
        samples_per_batch=samples,
        samples_per_s=rate,
        locked=0.0 if at_own_locks else _locked(facts),
        staying=0.0 if persistent else _staying_s(rank, facts, fetches),
    )


def _unfit(rank: RankMetrics, facts: RuleInputs) -> Refused | None:
    """Say why this run cannot be replayed."""
    loader = facts.loader
    if rank.loader_elsewhere or facts.loader_elsewhere:
        return Refused(
            "loader_in_thread",
            "a thread of the program takes the batches from the loader; how it hands them over is "
            "unknown",
        )
    if loader is None or rank.steps is None:
        return Refused("no_loader", "no DataLoader feeds the training")
    if (
        not facts.setting("torchs_dispatch", loader.kind == "DataLoader")
        and loader.kind != _STATEFUL
    ):
        return Refused(
            "not_a_dataloader",
            f"{loader.kind} does not dispatch its batches as torch's DataLoader does",
        )
    if len(rank.makers.loaders) > 1:
        return Refused(
            "several_loaders",
            f"{len(rank.makers.loaders)} loaders feed the training; only a single loader can be "
            f"replayed",
        )
    if facts.comm is not None or _ranks(rank) > 1:
        return Refused(
            "several_ranks",
            "a step lasts as long as that of the slowest rank, and the replay covers the loader "
            "of only one",
        )
    if not rank.makers.measures_runqueue:
        return Refused(
            "no_run_queue",
            "this kernel does not report how long threads wait for a CPU (schedstat)",
        )
    if not facts.throughput.samples_per_s:
        return Refused("no_rate", "the size of the batches is unknown")
    if facts.setting("map_style") is False and _fed(rank) < _setting(facts).num_workers:
        return Refused(
            "idle_workers",
            "some workers made no batch (fewer shards than workers), and how the shards are "
            "divided is unknown",
        )
    return None


def _too_few(rank: RankMetrics, batches: int) -> Refused | None:
    """Say that too little was recorded to replay it."""
    steps = len(rank.steps.wall) - rank.first if rank.steps else 0
    if min(batches, steps) >= _MIN_BATCHES:
        return None
    return Refused(
        "too_few_batches",
        f"{batches} batches and {steps} steps were recorded; a prediction needs at least "
        f"{_MIN_BATCHES} of each: record a longer run",
    )


def _ranks(rank: RankMetrics) -> int:
    size = rank.rank.manifest.place.get("world_size")
    return size if isinstance(size, int) else 1


def _fed(rank: RankMetrics) -> int:
    """Return the workers that made batches."""
    return len(
        {
            process.header.get("worker")
            for process in rank.makers.processes
            if process.is_worker and len(process.batches)
        }
    )


def _setting(facts: RuleInputs) -> Setting:
    workers, ahead = facts.setting("num_workers"), facts.setting("prefetch_factor")
    return Setting(
        num_workers=workers if isinstance(workers, int) else 0,
        prefetch_factor=ahead if isinstance(ahead, int) and ahead else Setting.prefetch_factor,
        in_order=facts.setting("in_order") is not False,
    )


def _made(rank: RankMetrics, persistent: bool) -> Records:
    """Return the FETCH records of the training loader's batches, in the order of the requests.

    The first ones of each worker and those from before the first step that counts are left out,
    where there are others.
    """
    assert rank.steps is not None
    warm = warm_up(rank.makers.processes, persistent)
    fetches = np.concatenate(
        [process.batches[~warming(process, persistent, warm)] for process in rank.makers.processes]
    )
    fetches = fetches[
        np.isin(fetches["source"], list(rank.makers.loaders))
        & (fetches["cpu"] >= 0)
        & (fetches["runqueue"] >= 0)
    ]
    fetches = fetches[np.argsort(fetches["number"], kind="stable")]
    after = fetches["start"] >= rank.steps.start[min(rank.first, len(rank.steps.start) - 1)]
    return np.asarray(fetches[after] if after.sum() >= _MIN_BATCHES else fetches)


@dataclass(frozen=True)
class _Handover:
    """What a batch costs on its way from a worker to the main process.

    Attributes:
        worker_s: CPU seconds of the worker: the batch into shared memory, and pickling it.
        shared_s: of that, spent while the recorded batches were made.
        receiving: by the main process.
        receiving_bounds: lower and upper end of that, where it is an estimate.
        freed_s: CPU seconds of the main process to give back its memory, as recorded.
        woken_s: that its own work may take longer besides.
    """

    worker_s: float
    shared_s: float
    receiving: Task
    receiving_bounds: tuple[Task, ...]
    freed_s: float
    woken_s: float = 0.0


def _measured_handover(
    rank: RankMetrics, facts: RuleInputs, main: Main, fetches: Records
) -> _Handover:
    """Return what workers and the main process took to hand over a batch."""
    shared_s = _sharing_s(fetches, _into_shared_s(facts))
    return _Handover(
        worker_s=shared_s + _pickling_s(rank),
        shared_s=shared_s,
        receiving=main.receiving,
        receiving_bounds=(),
        freed_s=freed_s(facts),
        # what receiving takes at most, and was not seen there
        woken_s=max(0.0, per_batch_s(facts).high - main.receiving.alone_s),
    )


def _estimated_handover(facts: RuleInputs) -> _Handover:
    """Return what a worker would take, at least, of a loader that has none."""
    receiving_s = from_workers_s(facts)
    return _Handover(
        worker_s=_into_shared_s(facts) + _PICKLING_S,
        shared_s=0.0,
        receiving=Task(receiving_s.middle, 0.0),
        receiving_bounds=(Task(receiving_s.low, 0.0), Task(receiving_s.high, 0.0)),
        freed_s=0.0,
    )


def _in_pinning_thread(facts: RuleInputs, workers: int) -> tuple[Task, Task]:
    """Return what a batch costs in the thread that pins: pinning it, and receiving it there."""
    if not workers or "pin" not in facts.moved:
        return NOTHING, NOTHING
    return _moving(facts, "pin"), _moving(facts, "transport")


def _restarting_s(begins: Starts, workers: int) -> float:
    """Return the CPU seconds per batch for starting the workers again in each pass."""
    return begins.worker_cpu_s * workers / begins.per_pass if begins.counted else 0.0


def _staying_s(rank: RankMetrics, facts: RuleInputs, fetches: Records) -> float:
    """Return the CPU seconds that a batch would take more in workers that stayed."""
    in_later_passes = float((fetches["number"] >> 32 > 0).mean())
    return facts.staying_s * in_later_passes - facts.settling_s


def _batches(fetches: Records, helpers: float, samples: float, sharing_s: float) -> list[Task]:
    """Return what each batch took besides handing it over.

    Args:
        sharing_s: CPU seconds of each for shared memory, on average.
    """
    cpu = np.minimum(fetches["cpu"], fetches["wall"]) / 1e9
    off = np.maximum(fetches["wall"] / 1e9 - cpu - fetches["runqueue"] / 1e9, 0.0)
    pieces = max(1, min(_MOST_PIECES, round(samples)))
    own = cpu * (1 - sharing_s / max(float(cpu.mean()), 1e-9))
    return [
        Task(computes * helpers, blocked, helpers, pieces)
        for computes, blocked in zip(own.tolist(), off.tolist())
    ]


def _into_shared_s(facts: RuleInputs) -> float:
    """Return the CPU seconds that collating a batch into new shared memory takes a worker.

    It is what that takes longer than memory that it has.
    """
    return _SHARING_S_PER_BYTE * shared_bytes(facts) + SHARING_S_PER_TENSOR * tensors(facts)


def _sharing_s(fetches: Records, at_most_s: float) -> float:
    """Return the CPU seconds that a worker takes to write a batch into shared memory.

    It is half of what making it takes at most: a collate that copies it into ordinary memory leaves
    that to the thread that pickles, whose time is measured.
    """
    return min(at_most_s, float(np.minimum(fetches["cpu"], fetches["wall"]).mean()) / 2e9)


def _more_to_share_s(facts: RuleInputs, samples: float) -> float:
    """Return the CPU seconds that a batch takes more if it is made in shared memory.

    Collating into it replaces the collating that was recorded.
    """
    return max(0.0, _SHARING_S_PER_BYTE * min(_loader_bytes(facts)) - _collating_s(facts) * samples)


def _locking(recorded: RecordedInput, tensors: float) -> RecordedInput:
    """Let receiving wait for Python's lock in a worker that makes its next batch.

    It waits as long as was recorded on average, but only while a worker does. Where hardly any did,
    the waiting is of another kind and stays.

    Args:
        tensors: of a batch.
    """
    waits_s = recorded.receiving.off_cpu_s
    candidate = replace(
        recorded,
        receiving=replace(recorded.receiving, off_cpu_s=0.0),
        locks=round(_LOCKS_PER_TENSOR * tensors),
    )
    least, most = 0.0, _SWITCH_INTERVAL_S
    at_most_s = replace(candidate, lock_s=most).locked_s(_MANY) if waits_s else 0.0
    if at_most_s < _LOCKED * waits_s or not waits_s:
        return recorded
    while at_most_s > waits_s and most - least > _LOCK_ERROR_S:
        middle = (least + most) / 2
        least, most = (
            (least, middle)
            if replace(candidate, lock_s=middle).locked_s(_MANY) > waits_s
            else (middle, most)
        )
    rest_s = max(0.0, waits_s - replace(candidate, lock_s=most).locked_s(_MANY))
    return replace(candidate, receiving=replace(recorded.receiving, off_cpu_s=rest_s), lock_s=most)


def _delayed(recorded: RecordedInput, fetches: Records) -> RecordedInput:
    """Let batches wait for a CPU as long as recorded.

    Other programs count for less until it is not slower than recorded. Sharing the CPUs evenly
    slows it too much where other programs have a lower priority, and too little where a thread that
    wakes up has to wait for its turn.
    """
    queued_s, wall_s = (float(fetches[column].mean()) / 1e9 for column in ("runqueue", "wall"))
    for weight in _WEIGHTS if recorded.others or recorded.kept else (0.0,):
        weighed = replace(recorded, others=recorded.others * weight, kept=recorded.kept * weight)
        making_s = weighed.making_s(_MANY)
        late_s = min(queued_s, max(0.0, wall_s - making_s))
        late = replace(
            weighed,
            batches=[replace(task, off_cpu_s=task.off_cpu_s + late_s) for task in weighed.batches],
        )
        if (
            making_s <= wall_s * _CLOSE
            and late.batches_per_s(_MANY) * late.samples_per_batch * _CLOSE >= late.samples_per_s
        ):
            break
    return late


def _loader_bytes(facts: RuleInputs) -> tuple[float, float]:
    """Return the bytes of a batch in its tensors and arrays, and those that are pickled."""
    loader = facts.loader
    return (loader.batch_bytes or 0.0, loader.pickle_bytes or 0.0) if loader else (0.0, 0.0)


def _collating_s(facts: RuleInputs) -> float:
    """Return the CPU seconds per sample of copying it into a batch.

    A collate into shared memory does so at the same time.
    """
    cost = facts.costs.get("collate")
    return (cost.cpu_s or 0.0) if cost else 0.0


def _pickling_s(rank: RankMetrics) -> float:
    """Return the CPU seconds per batch of a worker's thread that sends.

    It has the same lock of Python's as the thread that makes.
    """
    pickle, fetch = rank.makers.sums(Stage.PICKLE), rank.makers.sums(Stage.FETCH)
    return pickle["cpu"] / fetch["records"] / 1e9 if fetch["records"] else 0.0


def _moving(facts: RuleInputs, stage: str) -> Task:
    """Return what one batch takes in this stage."""
    moved = facts.moved.get(stage)
    return Task((moved.cpu_s or 0.0) / moved.times, 0.0) if moved else NOTHING


def _helpers(facts: RuleInputs) -> float:
    """Return the CPU time of the processes that make batches over that of their known threads.

    It is at least 1.
    """
    accounted = accounted_cpu_s(facts.costs)
    return max(1.0, (facts.process_cpu_s or 0.0) / accounted) if accounted else 1.0


def _making(facts: RuleInputs) -> dict[str, Shares]:
    whole = facts.costs.get("total")
    stages = {name: facts.costs[name] for name in MAKING_STAGES if name in facts.costs}
    if whole is None:
        return {}
    cpu = max(whole.cpu_s or 0.0, sum(cost.cpu_s or 0.0 for cost in stages.values())) or 1.0
    off = max(whole.blocked_s or 0.0, sum(cost.blocked_s or 0.0 for cost in stages.values())) or 1.0
    return {
        name: Shares((cost.cpu_s or 0.0) / cpu, (cost.blocked_s or 0.0) / off)
        for name, cost in stages.items()
    }


def _others(facts: RuleInputs) -> float:
    """Return how many threads of other programs want a CPU.

    They are more than got one where the CPUs are full, for they wait as the training's own do.
    """
    use, held = facts.cpus, _held_by_others(facts)
    return held * (1 + facts.waiting_cpus() / use.own) if use is not None and use.own else held


def _held_by_others(facts: RuleInputs) -> float:
    """Return how many CPUs other programs used of those that the training may use."""
    use = facts.cpus
    if use is None or not use.others:
        return 0.0
    # CPUs that a quota keeps from the training: others may have them first
    hidden = max(0.0, (use.affinity or use.allowed) - use.allowed)
    return max(0.0, use.others - hidden)


def _yields(rank: RankMetrics) -> bool:
    """Return whether the training leaves CPUs to programs of usual priority: it is niced.

    At a nice value of 10, a thread weighs a tenth of theirs (Linux, sched_prio_to_weight): more
    workers get hardly more than what those leave.
    """
    nice = rank.rank.manifest.machine.get("nice")
    return isinstance(nice, int) and nice >= _NICED


def _locked(facts: RuleInputs) -> float:
    workers, total = facts.workers, facts.costs.get("total")
    if (
        workers is None
        or total is None
        or not total.blocked_s
        or workers.blocked_looks < _MIN_BATCHES
        or not workers.blocked_by
    ):
        return 0.0
    return total.blocked_s / total.wall_s * workers.blocked_by.get("lock", 0.0)


def _disk(facts: RuleInputs, rate: float) -> float | None:
    nbytes = (facts.traffic.disk_bytes or 0.0) * rate
    return nbytes if nbytes > _FEW_BYTES else None
