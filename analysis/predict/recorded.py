"""What the replay of a loader takes of a recording: each batch's and each step's work, free of what it waited for."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from feedline.analysis.facts import RuleInputs
from feedline.analysis.gather import RankMetrics
from feedline.analysis.handover_cost import per_batch_s
from feedline.analysis.predict.change import Refused
from feedline.analysis.predict.loader_replay import Setting, Task
from feedline.analysis.predict.main_process import main_process
from feedline.analysis.predict.starts import Starts, starts
from feedline.analysis.stages import MAKING_STAGES
from feedline.profiler.events import Stage
from feedline.profiler.store.columns import Records

FEWEST = 16  # batches, and steps: fewer say little of how they differ
MOST_PIECES = 6  # in which a batch computes and waits in turns: more change the replay by less than 1 %
TORCHS = ("DataLoader", "StatefulDataLoader")  # whose dispatch is replayed
FEW_BYTES = 1e6  # per second: any disk has room for more
SENDING_S = 0.3e-3  # through the queue's pipe, besides pickling


@dataclass(frozen=True)
class Shares:
    """Of the work of a batch or step, that one stage is (0 to 1)."""

    cpu: float
    off_cpu: float


@dataclass(frozen=True)
class RecordedInput:
    """One rank's training loader and steps.

    Attributes:
        setting: as it was recorded.
        persistent: whether workers stay between passes.
        batches: what making each takes on CPUs of its own, in the order in which they were asked for.
        steps: what the main process does with each batch, without receiving it.
        receiving: taking a batch over from a worker: as recorded; without workers, what it takes at best.
        sending: seconds from when a batch is made until it can be received.
        starts: what beginning a pass costs.
        making: stage -> its shares of the work of a batch.
        own: stage -> its share (0 to 1) of a step's own work.
        helpers: threads that compute for a worker while its own does; 1: only its own.
        cpus: that the training may use.
        others: threads of other programs that want a CPU.
        disk: bytes per second from the disk while it was recorded; None: unknown or next to none.
        samples_per_batch: mean.
        samples_per_s: as the report has it.
    """

    setting: Setting
    persistent: bool
    batches: list[Task]
    steps: list[Task]
    receiving: Task
    sending: float
    starts: Starts
    making: Mapping[str, Shares]
    own: Mapping[str, float]
    helpers: float
    cpus: float
    others: float
    disk: float | None
    samples_per_batch: float
    samples_per_s: float


def recorded_input(rank: RankMetrics, facts: RuleInputs) -> RecordedInput | Refused:
    """Read what the replay needs.

    Args:
        rank: of a recorded run.
        facts: of the same rank.
    """
    refused = _unfit(rank, facts)
    if refused is not None:
        return refused
    setting = _setting(facts)
    made, main = _made(rank), main_process(rank, facts, setting.num_workers)
    if len(made) < FEWEST or len(main.own_s) < FEWEST:
        return Refused(
            "too_few_batches",
            f"{len(made)} batches and {len(main.own_s)} steps were recorded, fewer than {FEWEST}: record a longer run to get a prediction",
        )
    helpers = _helpers(facts)
    rate, per_batch = facts.throughput.samples_per_s or 0.0, (facts.throughput.batch_size or 1.0) / main.batches
    begins = starts(rank, setting.num_workers, bool(facts.setting("persistent_workers")))
    best = per_batch_s(facts)
    receiving = main.receiving if setting.num_workers else Task((best.low + best.high) / 2, 0.0)
    return RecordedInput(
        setting=setting,
        persistent=bool(facts.setting("persistent_workers")),
        batches=_batches(made, helpers, per_batch, _pickling_s(rank)),
        steps=main.tasks(),
        receiving=receiving,
        sending=SENDING_S,
        starts=begins,
        making=_making(facts),
        own=main.shares,
        helpers=helpers,
        cpus=facts.effective_cpus,
        others=_others(facts),
        disk=_disk(facts, rate),
        samples_per_batch=per_batch,
        samples_per_s=rate,
    )


def _unfit(rank: RankMetrics, facts: RuleInputs) -> Refused | None:
    """Why this run cannot be replayed."""
    loader = facts.loader
    if rank.loader_elsewhere or facts.loader_elsewhere:
        return Refused("loader_in_thread", "the loader is asked by a thread of the program's own, which the replay does not know")
    if loader is None:
        return Refused("no_loader", "no DataLoader feeds the training, so there is nothing to replay")
    if loader.kind not in TORCHS:
        return Refused("not_a_dataloader", f"{loader.kind} does not dispatch its batches as torch's DataLoader does")
    if len(rank.makers.loaders) > 1:
        return Refused("several_loaders", f"{len(rank.makers.loaders)} loaders feed the training; the replay knows one")
    if facts.comm is not None or _ranks(rank) > 1:
        return Refused("several_ranks", "ranks wait for each other, which the replay of one rank's loader does not know")
    if not rank.makers.measures_runqueue:
        return Refused("no_run_queue", "this kernel does not tell how long threads wait for a CPU (schedstat)")
    if not facts.throughput.samples_per_s:
        return Refused("no_rate", "the size of the batches is unknown, and with it the rate")
    if facts.setting("map_style") is False and _shards(rank) < (_setting(facts).num_workers or 1):
        return Refused("shards", "some workers had no batches (fewer shards than workers), which the replay does not know")
    return None


def _ranks(rank: RankMetrics) -> int:
    size = rank.rank.manifest.place.get("world_size")
    return size if isinstance(size, int) else 1


def _shards(rank: RankMetrics) -> int:
    """Workers that made batches."""
    return len({process.header["worker"] for process in rank.makers.processes if process.is_worker and len(process.batches)}) or 1


def _setting(facts: RuleInputs) -> Setting:
    given = facts.loader.settings if facts.loader else {}
    workers, ahead = given.get("num_workers"), given.get("prefetch_factor")
    return Setting(
        workers if isinstance(workers, int) else 0, ahead if isinstance(ahead, int) and ahead else 2, given.get("in_order") is not False
    )


def _made(rank: RankMetrics) -> Records:
    """The FETCH records of the training loader's batches, in the order in which they were asked for, without those of before the first step
    that counts, where there are others."""
    assert rank.steps is not None
    made = np.concatenate([process.batches for process in rank.makers.processes])
    made = made[np.isin(made["source"], list(rank.makers.loaders)) & (made["cpu"] >= 0) & (made["runqueue"] >= 0)]
    made = made[np.argsort(made["number"], kind="stable")]
    after = made["start"] >= rank.steps.start[min(rank.first, len(rank.steps.start) - 1)]
    return made[after] if after.sum() >= FEWEST else made


def _batches(made: Records, helpers: float, samples: float, pickling_s: float) -> list[Task]:
    cpu = np.minimum(made["cpu"], made["wall"]) / 1e9
    off = np.maximum(made["wall"] / 1e9 - cpu - np.maximum(made["runqueue"], 0) / 1e9, 0.0)
    pieces = max(1, min(MOST_PIECES, round(samples)))
    return [Task((own + pickling_s) * helpers, blocked, helpers, pieces) for own, blocked in zip(cpu.tolist(), off.tolist())]


def _pickling_s(rank: RankMetrics) -> float:
    """CPU seconds per batch of a worker's thread that sends; it has the same lock of Python's as the thread that makes."""
    pickle, fetch = rank.makers.sums(Stage.PICKLE), rank.makers.sums(Stage.FETCH)
    return pickle["cpu"] / fetch["records"] / 1e9 if fetch["records"] else 0.0


def _helpers(facts: RuleInputs) -> float:
    """CPU time of the processes that make batches over that of the threads that are accounted for, at least 1."""
    costs = facts.workers.per_sample if facts.workers else {}
    accounted = sum(costs[name].cpu_s or 0.0 for name in ("total", "transport") if name in costs)
    return max(1.0, (facts.process_cpu_s or 0.0) / accounted) if accounted else 1.0


def _making(facts: RuleInputs) -> dict[str, Shares]:
    costs = facts.workers.per_sample if facts.workers else {}
    whole = costs.get("total")
    if whole is None:
        return {}
    stages = {name: costs[name] for name in MAKING_STAGES if name in costs}
    cpu = max(whole.cpu_s or 0.0, sum(cost.cpu_s or 0.0 for cost in stages.values())) or 1.0
    off = max(whole.blocked_s or 0.0, sum(cost.blocked_s or 0.0 for cost in stages.values())) or 1.0
    return {name: Shares((cost.cpu_s or 0.0) / cpu, (cost.blocked_s or 0.0) / off) for name, cost in stages.items()}


def _others(facts: RuleInputs) -> float:
    """Threads of other programs that want a CPU: more than what they got where the CPUs are full, as the training's own wait for one."""
    use = facts.cpus
    if use is None or not use.others:
        return 0.0
    crew, cost = facts.workers, facts.workers.per_sample.get("total") if facts.workers else None
    queued = cost.runqueue_s / cost.wall_s if cost and cost.runqueue_s and cost.wall_s else 0.0
    lacking = (facts.main_runqueue_share or 0.0) + (crew.processes * (crew.busy_share or 0.0) * queued if crew else 0.0)
    hidden = max(0.0, (use.affinity or use.allowed) - use.allowed)  # CPUs that a quota keeps from the training: others are there at first
    return max(0.0, use.others - hidden) * (1 + lacking / use.own if use.own else 1.0)


def _disk(facts: RuleInputs, rate: float) -> float | None:
    nbytes = (facts.traffic.disk_bytes or 0.0) * rate
    return nbytes if nbytes > FEW_BYTES else None
