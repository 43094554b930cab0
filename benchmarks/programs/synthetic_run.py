"""Writes run folders of ranks that never ran: what feedline's own recorder would have written, with
a truth that is known.

A step of 100 ms: 2 ms of waiting for a batch, 18 ms of forward, 60 ms of backward in which buckets
are handed over, 20 ms of optimizer. All ranks end a bucket together, 0.5 ms after the last of them
began it. In each step one rank, drawn by chance, hands its first bucket over 5 ms late, and has
caught up before the second.
"""

import random
from dataclasses import dataclass
from pathlib import Path

from feedline.profiler.events import Flag, Stage, batch_key
from feedline.profiler.store.compact import compact
from feedline.profiler.store.layout import main_segment, rank_folder
from feedline.profiler.store.manifest import Manifest
from feedline.profiler.store.segment import Segment, window_of

MS = 1_000_000  # ns
STEP, WAIT, FORWARD, BACKWARD = 100 * MS, 2 * MS, 18 * MS, 60 * MS
TRANSFER, LATE = 500_000, 5 * MS
BOOT = 10**13
ROUND_TRIP = 2_000


@dataclass(frozen=True)
class Plan:
    """What to write.

    Attributes:
        later: ns after which it all begins.
        loader: there is a DataLoader, which gives 32 samples a step.
    """

    ranks: int
    steps: int
    collectives: int
    per_host: int = 8
    seed: int = 0
    launch: str = "synthetic"
    later: int = 0
    loader: bool = True

    def late_rank(self, step: int) -> int:
        """Half the time it is rank 3."""
        dice = random.Random(self.seed * 1_000_003 + step)
        return 3 % self.ranks if dice.random() < 0.5 else dice.randrange(self.ranks)

    def offset(self, rank: int) -> int:
        """How far a host's clock is ahead, ns."""
        return (rank // self.per_host) * 3_000_000_000


def write_rank(
    path: Path,
    plan: Plan,
    rank: int,
    steps: int | None = None,
    restart: int = 0,
    compacted: bool = True,
) -> None:
    """One rank's folder.

    Args:
        steps: how many it made before it ended; None: all.
        compacted: as after a run that ended; else as after one that was killed.
    """
    folder = rank_folder(path, rank, restart)
    segment = Segment(main_segment(folder), {"role": "main", "pid": 1})
    _write(segment, plan, rank, plan.steps if steps is None else steps)
    segment.close()
    node, local = divmod(rank, plan.per_host)
    place: dict[str, object] = {
        "rank": rank,
        "local_rank": local,
        "world_size": plan.ranks,
        "group_rank": node,
        "restart": restart,
    }
    anchors = [{"perf_counter_ns": BOOT, "time_ns": BOOT}]
    Manifest(
        launch=plan.launch,
        command=["train.py"],
        place=place,
        anchors=anchors,
        exit_code=0,
        ended=compacted,
    ).write(folder)
    if compacted:
        compact(folder)


def _write(segment: Segment, plan: Plan, rank: int, steps: int) -> None:
    name, group, dtype, backend, host = (
        segment.name_id(text)
        for text in ("allreduce_", "world", "float32", "nccl", f"host{rank // plan.per_host}")
    )
    offset, boot = plan.offset(rank), BOOT + plan.later
    segment.add(
        Stage.GROUP, boot, 0, source=group, cpu=backend, nbytes=plan.ranks, number=0, extra=1
    )
    for at in (0, steps * STEP):
        segment.add(
            Stage.CLOCK, boot + offset + at, 0, number=-offset, extra=ROUND_TRIP, source=host
        )
    every = (BACKWARD - 10 * MS - LATE) // plan.collectives
    for step in range(steps):
        segment.window = window_of(0, step)
        late = LATE if plan.late_rank(step) == rank else 0
        begin = boot + offset + step * STEP
        if plan.loader:
            segment.add(Stage.NEXT, begin, WAIT, number=batch_key(0, step), extra=32)
        segment.add(Stage.FORWARD, begin + WAIT, FORWARD, flags=Flag.GRAD | Flag.TRAINING)
        first = begin + WAIT + FORWARD
        for index in range(plan.collectives):
            number = step * plan.collectives + index
            uneven = (
                number * 7919 + rank * 104_729
            ) % 1009  # ns: real times do not compress so well
            handed = first + (index > 0) * (LATE + MS) + max(index - 1, 0) * every
            begun = handed + late * (index == 0) - uneven
            done = handed + LATE * (index == 0) + TRANSFER
            segment.add(
                Stage.COLLECTIVE,
                begun,
                done - begun,
                group,
                dtype,
                25 << 20,
                number,
                0,
                name,
                Flag.BUCKET,
            )
        segment.add(Stage.BACKWARD, first, BACKWARD)
        segment.add(Stage.OPTIMIZER, first + BACKWARD, 10 * MS, number=1)
