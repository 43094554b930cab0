"""What the main process was doing when its run ended or was interrupted.

It was waiting for a batch, say, or did nothing that is recorded.
"""

import time
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from feedline.analysis.measure.batch_making import DOING as DOING_BLOCKED
from feedline.analysis.measure.batch_making import pids_in_file
from feedline.analysis.measure.model import Gauge
from feedline.analysis.measure.rank_metrics import RankMetrics
from feedline.analysis.measure.steps import ASIDE
from feedline.analysis.text.formatting import counted, seconds
from feedline.profiler.events import Flag, Stage
from feedline.profiler.samplers.blocked_threads import ON_UNKNOWN
from feedline.profiler.store.record_columns import Records, last_sign
from feedline.profiler.store.segment_reader import Process

# a wait from here on is told; a person who sees nothing come waits longer before Ctrl-C
LONG_S = 3.0
_OF_STEPS = 3  # and only if it is that many times the longest step
_FEWEST = 5  # looks at a blocked worker that tell what it waits for
_MOST = 0.9  # of them, that found the same

#: Stages that may fail or be interrupted, as a place in a sentence.
_DOING = {
    Stage.EPOCH: "while a loader's iterator was made",
    Stage.COPY: "while a tensor was copied to a device",
    Stage.FORWARD: "in the forward pass",
    Stage.LOSS: "in the loss function",
    Stage.BACKWARD: "in the backward pass",
    Stage.OPTIMIZER: "in the optimizer's update",
    Stage.CHECKPOINT: "in torch.save",
    Stage.COMPILE: "in torch.compile",
}


@dataclass(frozen=True)
class LastWait:
    """A request for a batch to which none came.

    Attributes:
        loader: its number.
        since_s: when it began, seconds after the recording did.
        s: how long it had lasted at the end.
        worker: number of the worker whose turn it was; None: not known, or there are no workers.
        workers: that had started.
        blocked: worker -> what it was seen to wait for (profiler/samplers/blocked_threads.py),
            where that is sure.
        looks: how many looks that is from.
    """

    loader: int
    since_s: float
    s: float
    worker: int | None = None
    workers: int = 0
    blocked: dict[int, str] = field(default_factory=dict)
    looks: int = 0


@dataclass(frozen=True)
class AtEnd:
    """The last that is known of the main process.

    Attributes:
        doing: the recorded call that was interrupted or failed, as in ``in torch.save``; empty:
            none was.
        silent_s: seconds in which nothing was recorded, where they are many; None else, or not
            known.
        wait: for a batch; None: it did not wait for one.
        evaluating: models were only called without gradients.
        batches: that came from loaders in the whole run, those that were only counted aside.
        exhausted: number of a loader that came to its end without a batch; None: none did.
    """

    doing: str = ""
    silent_s: float | None = None
    wait: LastWait | None = None
    evaluating: bool = False
    batches: int = 0
    exhausted: int | None = None

    @property
    def hangs(self) -> bool:
        """Whether it made no progress for long."""
        return self.silent_s is not None or self.wait is not None and self.wait.s >= LONG_S


def at_end(rank: RankMetrics, gauges: list[Gauge]) -> AtEnd:
    """Look at the last records of a rank.

    Of one of several trainings of a process, only at what it asked loaders for.
    """
    main = rank.main.records
    main = main[
        (main["thread"] == 0)
        & ~np.isin(
            main["stage"], [stage for stage in ASIDE if stage not in (Stage.PROFILED, Stage.REST)]
        )
    ]
    asked = main[main["stage"] == Stage.NEXT]
    came = asked["flags"] & (Flag.END | Flag.FAILED) == 0
    ends = asked[asked["flags"] & Flag.END != 0]["source"].tolist()
    gave = set(asked["source"][came].tolist())
    exhausted = next((loader for loader in ends if loader not in gave), None)
    state = AtEnd(batches=int(came.sum()), exhausted=exhausted)
    if not len(main) or rank.rank.slice is not None:
        return state
    end, origin = _end(rank, gauges), _origin(rank)
    last = int((main["start"] + main["wall"]).max())
    failed = main[
        (main["flags"] & (Flag.FAILED | Flag.END) == Flag.FAILED)
        & (main["start"] + main["wall"] >= main["start"].max())
    ]
    waiting = failed[failed["stage"] == Stage.NEXT][:1]
    begun = main[main["stage"] == Stage.EPOCH] if not rank.rank.manifest.ended else main[:0]
    if len(waiting):
        wait = _wait(rank, waiting[0], int(waiting["wall"][0]), origin)
    elif (
        len(begun)
        and not len(asked)
        and main["stage"][np.argmax(main["start"])] in (Stage.EPOCH, Stage.SAMPLER)
    ):
        wait = _wait(rank, begun[-1], end - last, origin, since=last)
    else:
        wait = None
    evaluation = (
        rank.steps.boundaries.evaluation if rank.steps is not None else np.zeros((0, 2), np.int64)
    )
    return AtEnd(
        doing=_DOING.get(Stage(int(failed["stage"][np.argmax(failed["start"])])), "")
        if len(failed) and wait is None
        else "",
        silent_s=_silent_s(rank, end - last) if wait is None and not len(failed) else None,
        wait=wait,
        evaluating=bool(len(evaluation) and last <= evaluation[-1, 1])
        and rank.steps is not None
        and rank.steps.boundaries.by != "loader",
        batches=state.batches,
        exhausted=state.exhausted,
    )


def _origin(rank: RankMetrics) -> int:
    anchors = rank.rank.manifest.anchors
    return int(anchors[0]["perf_counter_ns"]) if anchors else 0


def _end(rank: RankMetrics, gauges: list[Gauge]) -> int:
    """Return the end of the recording, ns.

    Of a process that was killed, it is its last sign of life.
    """
    manifest = rank.rank.manifest
    if manifest.ended and manifest.anchors:
        return int(manifest.anchors[-1]["perf_counter_ns"])
    if (
        manifest.state == "live" and manifest.anchors
    ):  # maybe on another machine, with its own clock
        begun = manifest.anchors[0]
        return begun["perf_counter_ns"] + time.time_ns() - begun["time_ns"]
    ends = [last_sign(process.records) for process in rank.rank.processes]
    sampled = [_origin(rank) + int(1e9 * gauge.at_s[-1]) for gauge in gauges if gauge.at_s]
    return max([*ends, *sampled])


def _silent_s(rank: RankMetrics, ns: int) -> float | None:
    """Return how long a run had no record before it failed or was interrupted, s.

    One that came to its end may have had other things to do after its steps, and a rest that a kill
    breaks off leaves no record.
    """
    steps, manifest = rank.steps, rank.rank.manifest
    if (
        not manifest.ended
        or not manifest.exit_code
        or steps is None
        or not len(steps.wall)
        or "stopped" in rank.main.header
    ):
        return None
    return ns / 1e9 if ns / 1e9 >= LONG_S and ns >= _OF_STEPS * int(steps.wall.max()) else None


def _wait(
    rank: RankMetrics, asked: "np.void", ns: int, origin: int, since: int | None = None
) -> LastWait:
    """Return the wait for a batch.

    Args:
        asked: the NEXT record, or the EPOCH record of the pass to whose first batch it did not
            come.
        ns: how long it lasted.
        since: ns, when it began; None: with the record.
    """
    begin = int(asked["start"]) if since is None else since
    loader = int(asked["source"])
    workers = {
        int(str(process.header["worker"])): process
        for process in rank.rank.processes
        if process.is_worker and process.header["loader"] == loader
    }
    number = int(asked["number"]) & 0xFFFFFFFF if since is None else 0
    blocked, looks = _blocked(rank.main, workers, begin, begin + ns)
    return LastWait(
        loader,
        (begin - origin) / 1e9,
        ns / 1e9,
        _turn(rank, loader, number),
        len(workers),
        blocked,
        looks,
    )


def _turn(rank: RankMetrics, loader: int, number: int) -> int | None:
    """Return the worker whose batch is to come next.

    torch asks them in turn, as long as none of them is at its end.
    """
    about = rank.rank.manifest.loaders[loader] if loader < len(rank.rank.manifest.loaders) else {}
    workers = int(str(about.get("num_workers") or 0))
    if not workers or not about.get("in_order", True):
        return None
    arrived = rank.main.view(Stage.ARRIVE)
    arrived = arrived[(arrived["source"] == loader) & (arrived["worker"] >= 0)]
    in_turn = ((arrived["number"] & 0xFFFFFFFF) % workers == arrived["worker"]).all()
    return number % workers if in_turn else None


def _blocked(
    main: Process, workers: dict[int, Process], begin: int, end: int
) -> tuple[dict[int, str], int]:
    """Return what each worker waited for nearly all of a time, and how many looks say so.

    Workers that were not looked at are left out.
    """
    looks = main.view(Stage.LOOK)
    looks = looks[(looks["start"] >= begin) & (looks["start"] <= end)]
    causes: dict[int, str] = {}
    number = 0
    for worker, process in workers.items():
        seen: Records = looks[np.isin(looks["pid"], pids_in_file(process))]
        kinds = Counter[str](
            main.names.get(source, "unknown") for source in seen["source"].tolist()
        )
        kind, most = kinds.most_common(1)[0] if kinds else ("", 0)
        if most >= _FEWEST and most >= _MOST * len(seen) and not _idle(process, begin):
            causes[worker] = kind
            number += most
    return causes, number


def _idle(worker: Process, begin: int) -> bool:
    """Tell whether it had no batch to make.

    It made none that was under way then, and has been given none since the last.
    """
    produced, given = (
        worker.of(stage)["start"] + worker.of(stage)["wall"] for stage in (Stage.FETCH, Stage.IDLE)
    )
    last = int(produced.max()) if len(produced) else 0
    return last <= begin and not (len(given) and given.max() > last)


def waits(wait: LastWait) -> str:
    """Return ``waiting 11.4 s for a batch from worker 0, which was sleeping``."""
    if wait.worker is None:
        return f"waiting {seconds(wait.s)} for a batch"
    kind = wait.blocked.get(wait.worker, ON_UNKNOWN)
    blocked = (
        "" if kind == ON_UNKNOWN else f", which was {DOING_BLOCKED.get(kind, f'blocked ({kind})')}"
    )
    return f"waiting {seconds(wait.s)} for a batch from worker {wait.worker}{blocked}"


def of_workers(wait: LastWait) -> str:
    """Return what all workers did meanwhile; empty where that is not known, or not the same."""
    kinds = set(wait.blocked.values()) - {ON_UNKNOWN}
    if not wait.workers or len(wait.blocked) < wait.workers or len(kinds) != 1:
        return ""
    kind = kinds.pop()
    which = {1: "its worker was", 2: "both its workers were"}.get(
        wait.workers, f"all its {wait.workers} workers were"
    )
    return (
        f"{which} {DOING_BLOCKED.get(kind, f'blocked ({kind})')} (in {counted(wait.looks, 'look')})"
    )
