"""The collectives of a rank out of its run folder."""

import numpy as np
import numpy.typing as npt

from feedline.analysis.intervals import IntArray, overlap
from feedline.analysis.measure.at_end import LONG_S
from feedline.analysis.measure.garbage import COLLECTING, long_collections
from feedline.analysis.measure.stages import STAGE_OF_RECORD
from feedline.analysis.measure.steps import ASIDE, Steps, left_after, steps_of
from feedline.analysis.traces.collectives import (
    COLLECTIVE_DTYPE,
    NO_VALUE,
    PHASES,
    UNKNOWN_HOST,
    Collectives,
    ProcessGroup,
    RankClock,
)
from feedline.profiler.errors import FeedlineError
from feedline.profiler.events import Flag, Stage
from feedline.profiler.message import OTHER_LIBRARY
from feedline.profiler.store.record_columns import Records, last_sign
from feedline.profiler.store.run_folder import Rank
from feedline.profiler.store.segment_reader import Process

_TAP = "collectives"  # the hook that sees the others
_ENQUEUED_IN = {  # stage -> what the rank was doing when it asked for a collective: of PHASES
    Stage.FORWARD: "forward",
    Stage.LOSS: "forward",
    Stage.BACKWARD: "backward",
    Stage.OPTIMIZER: "optimizer",
    Stage.NEXT: "loader",
    Stage.EPOCH: "loader",
}
# a measurement with a round trip of more than this many medians was delayed on the way
_DISTURBED = 4.0
_LONGER = 3  # times the longest time between two collectives: the rank no longer moves
_FIRST = 8  # collectives, between which programs are compiled and workers started
# what is recorded beside the training goes on while that stands still
_BESIDE = [*(stage for stage in ASIDE if stage is not Stage.PROFILED), Stage.LOOK]
_FASTEST_DRIFT = 5e-4  # what two clocks part at most: NTP slews no faster (adjtimex(2): 500 ppm)


def collectives_of(rank: Rank) -> Collectives | None:
    """Read what a rank did together with others; None: it recorded no collective.

    Of a run that forgot windows (profiler/store/segment.py) only those that it kept.

    Raises:
        RunDamaged: the training process's records are missing.
    """
    collectives = steps_and_collectives(rank)
    return collectives if len(collectives.table) else None


def readable_collectives(rank: Rank) -> Collectives | None:
    """Read a rank's collectives; None: none were recorded, or they cannot be read."""
    try:
        return collectives_of(rank)
    except FeedlineError:
        return None


def steps_and_collectives(rank: Rank) -> Collectives:
    """Read steps and collectives, also of a rank that recorded no collective.

    Raises:
        RunDamaged: the training process's records are missing.
    """
    main = rank.main
    records, steps = _in_order(main), steps_of(main)
    groups, group_index = _groups(main, records)
    names, name_index = _indices(main, records["source"])
    dtypes, dtype_index = _indices(main, records["dtype"])
    table = np.zeros(len(records), COLLECTIVE_DTYPE)
    table["start"] = _came_to_it(records)
    table["end"] = np.where(records["wall"] >= 0, records["start"] + records["wall"], NO_VALUE)
    table["nbytes"], table["sequence"] = records["nbytes"], records["sequence"]
    table["group"], table["name"], table["dtype"] = group_index, name_index, dtype_index
    table["phase"] = _phases(main, records["start"], steps)
    table["bucket"] = records["flags"] & Flag.BUCKET != 0
    clock, host = clock_of(main, last_sign(main.records))
    return Collectives(
        rank=rank.number,
        host=host,
        table=table,
        groups=groups,
        names=names,
        dtypes=dtypes,
        steps=np.zeros((0, 2), np.int64)
        if steps is None
        else np.stack([steps.start, steps.boundaries.end], 1),
        stages=_stages_of(main),
        clock=clock,
        unseen=unrecorded_communication(rank),
        evaluation=np.zeros((0, 2), np.int64) if steps is None else steps.boundaries.evaluation,
        stride=main.stride,
        left_after=left_after(steps),
        live=rank.manifest.state == "live",
        quiet=_quiet(rank, main, table),
    )


def _quiet(rank: Rank, main: Process, table: npt.NDArray[np.void]) -> bool:
    """Tell whether a rank has begun and ended nothing for long, when it was read.

    Long is several times as long as ever between two collectives: one rank may save or evaluate, or
    windows were forgotten.

    Args:
        rank: the rank.
        main: its training process.
        table: COLLECTIVE_DTYPE, its collectives in order of start.
    """
    manifest = rank.manifest
    if not manifest.anchors or not manifest.read_ns or "stopped" in main.header:
        return False
    records = main.records[main.records["thread"] == 0]
    last = last_sign(records[~np.isin(records["stage"], _BESIDE)])
    last = max(last, int(table["start"].max(initial=0)), int(table["end"].max(initial=0)))
    begun = manifest.anchors[0]  # maybe of another machine, with its own clock
    silent = int(begun["perf_counter_ns"]) + manifest.read_ns - int(begun["time_ns"]) - last
    usual = int(np.diff(table["start"][_FIRST:]).max(initial=0))
    return silent >= max(LONG_S * 1e9, _LONGER * usual)


def _in_order(main: Process) -> Records:
    """Return COLLECTIVE records in the order in which they could begin."""
    records = main.view(Stage.COLLECTIVE)
    return records[np.argsort(_came_to_it(records), kind="stable")]


def _came_to_it(records: Records) -> IntArray:
    """Return int64 [n], ns: when each could begin, on a GPU once that came to it."""
    return np.asarray(records["start"] + np.maximum(records["until_gpu"], 0))


def _phases(main: Process, times: IntArray, steps: Steps | None) -> IntArray:
    """Return what the main thread was doing at these times.

    A backward that a kill cut short left no record: a collective that the reducer began then is in
    "other".

    Returns:
        int64 [n], indices into PHASES.
    """
    phases = np.full(len(times), PHASES.index("other"), np.int64)
    records = main.records[main.records["thread"] == 0]
    for stage, name in _ENQUEUED_IN.items():
        spans = records[records["stage"] == stage]
        spans = spans[np.argsort(spans["start"], kind="stable")]
        end = (
            np.maximum.accumulate(spans["start"] + spans["wall"]) if len(spans) else spans["start"]
        )
        phases[overlap(times, times + 1, spans["start"], end) > 0] = PHASES.index(name)
    if steps is not None and len(steps.start):
        phases[(times < steps.start[0]) & (phases == PHASES.index("other"))] = PHASES.index("init")
    return phases


def _stages_of(main: Process) -> dict[str, IntArray]:
    """Return the spans of each stage in the main thread, in order of start, int64 [k, 2], ns.

    They nest: a compilation inside a forward, a garbage collection inside anything.
    """
    records = main.records[main.records["thread"] == 0]
    spans_by_stage: dict[str, IntArray] = {}
    for stage, name in STAGE_OF_RECORD.items():
        spans = records[records["stage"] == stage]
        if len(spans):
            rows = np.stack([spans["start"], spans["start"] + spans["wall"]], 1)
            spans_by_stage[name] = rows[np.argsort(rows[:, 0], kind="stable")]
    if len(collected := long_collections(main)):
        spans_by_stage[COLLECTING] = collected
    return spans_by_stage


def clock_of(main: Process, last: int) -> tuple[RankClock, str]:
    """Return the measured clock, and the host by a name that says nothing else.

    Args:
        main: the training process.
        last: ns of the run's end, up to which the drift between the first and the last measurement
            is drawn out.
    """
    notes = main.view(Stage.CLOCK)
    if not len(notes):
        nothing = np.zeros(0, np.int64)
        return RankClock(nothing, nothing, np.inf), UNKNOWN_HOST
    host = main.names.get(int(notes["source"][-1]), UNKNOWN_HOST)
    notes = notes[notes["round_trip"] <= _DISTURBED * np.median(notes["round_trip"])]
    notes = notes[np.argsort(notes["start"], kind="stable")]
    at, offset = notes["start"].astype(np.int64), notes["offset"].astype(np.int64)
    bound = float(np.max(notes["round_trip"])) / 2
    if len(at) > 1 and 0 < last - at[-1] <= at[-1] - at[0]:  # no farther than was looked at
        slope = float(offset[-1] - offset[0]) / float(at[-1] - at[0])
        # not what two unlucky measurements make
        if abs(offset[-1] - offset[0]) > 2 * bound and abs(slope) <= _FASTEST_DRIFT:
            at, offset = (
                np.append(at, last),
                np.append(offset, offset[-1] + round(slope * (last - at[-1]))),
            )
    return RankClock(at, offset, bound), host


def _indices(main: Process, ids: IntArray) -> tuple[list[str], IntArray]:
    known, index = np.unique(ids, return_inverse=True)
    return [main.names.get(int(value), "unknown") for value in known.tolist()], index.reshape(-1)


def _groups(main: Process, records: Records) -> tuple[list[ProcessGroup], IntArray]:
    described = main.view(Stage.GROUP)
    known, index = np.unique(records["group"], return_inverse=True)
    groups = []
    for value in known.tolist():
        own = described[described["source"] == value]
        ranks = {
            int(run["first_rank"]) + step * int(run["apart"])
            for run in own
            for step in range(int(run["ranks"]))
        }
        backend = main.names.get(int(own["backend"][0]), "unknown") if len(own) else "unknown"
        groups.append(
            ProcessGroup(main.names.get(int(value), "unknown"), tuple(sorted(ranks)), backend)
        )
    return groups, index.reshape(-1)


def unrecorded_communication(rank: Rank) -> list[str]:
    """List backends and libraries whose communication was not recorded on this rank, and why."""
    hooks = [hook for hook in rank.manifest.hooks if not hook["attached"]]
    return [
        f"{hook['name']}: {hook['why']}"
        for hook in hooks
        if hook["name"] == _TAP or hook.get("reason") == OTHER_LIBRARY
    ]
