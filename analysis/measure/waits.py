"""Why the main process had no batch.

It follows from when each batch was ready in its worker, on the clock that all processes of a host
share.
"""

from collections.abc import Sequence

import numpy as np

from feedline.analysis.intervals import IntArray
from feedline.analysis.measure.steps import Steps
from feedline.profiler.events import Flag, Stage
from feedline.profiler.store.record_columns import Records
from feedline.profiler.store.segment_reader import Process

#: Why the main process waited for a batch.
_WAIT_KINDS = ("starved", "head_of_line", "handover", "in_transit", "first_batch", "overhead")

_OF_MAKING = ("handover", "in_transit", "head_of_line", "starved")


def _sent_times(workers: Sequence[Process]) -> dict[tuple[int, int], tuple[int, int]]:
    """Return when each batch was pickled, and the CPU time that this took, ns.

    By loader and batch key; a worker's feeder thread pickles them.
    """
    sent: dict[tuple[int, int], tuple[int, int]] = {}
    for worker in workers:
        pickles = worker.of(Stage.PICKLE)
        cpu = np.where(pickles["cpu"] >= 0, pickles["cpu"], pickles["wall"])
        sent.update(
            zip(
                zip(pickles["source"].tolist(), pickles["number"].tolist()),
                zip((pickles["start"] + pickles["wall"]).tolist(), cpu.tolist()),
            )
        )
    return sent


def classify(
    steps: Steps,
    ready: dict[tuple[int, int], int],
    workers: Sequence[Process] = (),
    alone: bool = False,
) -> dict[str, IntArray]:
    """Split each step's waiting by cause.

    first_batch    for the first batch of an epoch, and for last epoch's workers to end
    handover       the batch was made, but the worker's thread that sends it had no turn (Python's lock, a CPU, room in the pipe)
    in_transit     the batch was made, and on its way
    head_of_line   the batch was not made, but a later one was: the loader returns them in order
    starved        no batch was made
    overhead       the loader's own work in the main thread, which makes the batches itself

    Where workers forgot windows, waits for batches of which nothing is known are split as the
    others of the run are.

    Args:
        workers: that tell when each batch was sent.
        alone: the main process makes the batches.

    Returns:
        kind -> int64 [steps], ns; they sum to the step's "wait".
    """
    waits = {kind: np.zeros(len(steps.wall), np.int64) for kind in _WAIT_KINDS}
    lacking, sent = "overhead" if alone else "starved", _sent_times(workers)
    forgetful = {worker.header["loader"] for worker in workers if worker.stride > 1}
    unknown = np.zeros_like(steps.wall)
    later = later_ready(steps.asked, ready)
    asked = steps.asked
    edge = (asked["flags"] & (Flag.FIRST | Flag.END) != 0).tolist()
    loader, number = asked["source"].tolist(), asked["number"].tolist()
    for begin, end, of, step in zip(
        steps.waiting.start.tolist(),
        steps.waiting.end.tolist(),
        steps.waiting_for.tolist(),
        steps.waiting_in.tolist(),
    ):
        ready_at = ready.get((loader[of], number[of]))
        if of >= 0 and edge[of]:
            waits["first_batch"][step] += end - begin
        elif of >= 0 and ready_at is None and loader[of] in forgetful:
            unknown[step] += end - begin
        elif of < 0 or ready_at is None:
            waits[lacking][step] += end - begin
        else:
            ready_at = min(max(ready_at, begin), end)
            other = min(max(later[of], begin), ready_at)
            waits["starved"][step] += other - begin
            waits["head_of_line"][step] += ready_at - other
            done, cpu = sent.get((loader[of], number[of]), (ready_at, 0))
            late = max(0, min(done, end) - ready_at - cpu)
            waits["handover"][step] += late
            waits["in_transit"][step] += end - ready_at - late
    for kind, part in _split(unknown, waits).items():
        waits[kind] += part
    waits["handover"] += steps.handing
    return waits


def _split(unknown: IntArray, waits: dict[str, IntArray]) -> dict[str, IntArray]:
    """Split waits of unknown causes as the known ones are; all is starved where none is known.

    Args:
        unknown: int64 [steps], ns.
        waits: kind -> int64 [steps], ns.

    Returns:
        kind -> int64 [steps], ns; they sum to ``unknown``.
    """
    known = np.cumsum([waits[kind].sum() for kind in _OF_MAKING], dtype=float)
    known[-1] = known[-1] or 1.0
    edges = np.rint(unknown[:, None] * known / known[-1]).astype(np.int64)
    return dict(zip(_OF_MAKING, np.diff(edges, axis=1, prepend=0).T))


def later_ready(asked: Records, ready: dict[tuple[int, int], int]) -> list[int]:
    """Return when the first of the batches after each request was made, ns.

    2**62: none that is known.
    """
    never = 2**62
    later = [never] * len(asked)
    by_epoch: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for (loader, key), time in ready.items():
        by_epoch.setdefault((loader, key >> 32), []).append((key, time))
    suffix: dict[tuple[int, int], int] = {}
    for (loader, _), batches in by_epoch.items():
        earliest = never
        for key, time in sorted(batches, reverse=True):
            suffix[loader, key] = earliest
            earliest = min(earliest, time)
    for index, (loader, key) in enumerate(zip(asked["source"].tolist(), asked["number"].tolist())):
        later[index] = suffix.get((loader, key), never)
    return later


def ready_share(asked: Records, ready: dict[tuple[int, int], int]) -> float | None:
    """Return the share of the requests that found their batch made.

    The first of each epoch is left aside. None: there are no workers.
    """
    times = [
        (start, ready[loader, key])
        for start, loader, key, flags in zip(
            *(asked[name].tolist() for name in ("start", "source", "number", "flags"))
        )
        if (loader, key) in ready and not flags & (Flag.FIRST | Flag.END | Flag.FAILED)
    ]
    return sum(ready_at <= start for start, ready_at in times) / len(times) if times else None
