"""A run as pandas data frames, for a notebook and for tools of one's own.

run = Run.open(Path("runs/train-1121-0943"))
steps(run.ranks[0])      one row a step, one column a stage, seconds
records(run.ranks[0])    every record, as profiler/events.py describes it
"""

import numpy as np
import pandas as pd

from feedline.analysis.gather import Gathered
from feedline.profiler.events import Stage
from feedline.profiler.store.read import Rank


def steps(rank: Rank) -> pd.DataFrame:
    """Steps x stages of a rank.

    Returns:
        One row a step: ``start_s`` since the first step, ``wall_s``, ``batches``, ``samples``, and one column in seconds per stage of
        stages.STEP_STAGES that occurred; they sum to ``wall_s``. Empty when there was no step.

    Raises:
        RunDamaged: the training process's records are missing.
    """
    gathered = Gathered.of(rank)
    found = gathered.steps
    if found is None:
        return pd.DataFrame(columns=["start_s", "wall_s", "batches", "samples"])
    frame = pd.DataFrame(
        {
            "start_s": (found.start - found.start[0]) / 1e9,
            "wall_s": found.wall / 1e9,
            "batches": found.batches,
            "samples": found.samples,
            **{name: values / 1e9 for name, values in gathered.stages.items()},
        }
    )
    return frame.rename_axis("step")


def records(rank: Rank) -> pd.DataFrame:
    """Every record of a rank's processes.

    Returns:
        The columns of events.RECORD_DTYPE (times int64, ns), with ``stage`` as a name, and ``process`` ("main" or "loader0-worker1") and
        ``name`` (of the operation, module or optimizer; "" where there is none) added.
    """
    frames = []
    for process in rank.processes:
        frame = pd.DataFrame({field: np.ascontiguousarray(process.records[field]) for field in process.records.dtype.names or ()})
        frame["stage"] = [Stage(number).name.lower() for number in frame["stage"]]
        named = frame["stage"].isin(["read", "decode", "augment", "forward", "loss", "optimizer", "user"])
        frame["name"] = frame["source"].map(process.names).where(named).fillna("")
        header = process.header
        frame["process"] = f"loader{header['loader']}-worker{header['worker']}" if process.is_worker else "main"
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)
