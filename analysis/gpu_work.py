"""What a GPU did in the steps that torch.profiler recorded (profiler/taps/kineto_window.py)."""

import os

import numpy as np

from feedline.analysis.step_model import GpuWork
from feedline.analysis.traces.columns import DEVICE_WORK, Kind
from feedline.analysis.traces.intervals import union
from feedline.analysis.traces.windows import read_window
from feedline.profiler.errors import FeedlineError
from feedline.profiler.events import Stage
from feedline.profiler.store.layout import KINETO
from feedline.profiler.store.read import Rank
from feedline.profiler.store.segment_reader import Process

STEP = "ProfilerStep#"


def gpu_work(rank: Rank, main: Process) -> GpuWork | None:
    """Sum up the window of a rank; None: there is none in this training, it cannot be read, or it saw no GPU or several.

    The profiler slows the host, not the kernels: what the GPU needs for a step holds for the others too, how long it idled does not. All
    work that the steps launched counts, also what ran after them: the host may be many steps ahead.
    """
    path = rank.folder / KINETO
    if not len(main.of(Stage.PROFILED)) or not os.path.lexists(path):
        return None
    try:
        trace = read_window(path)
    except FeedlineError:
        return None  # a note of the report says why
    events = trace.events
    steps = {trace.names[name] for name in np.unique(events["name"][events["kind"] == Kind.ANNOTATION])}
    count = sum(name.startswith(STEP) for name in steps)
    launched = np.isin(events["correlation"], events["correlation"][events["kind"] == Kind.RUNTIME])
    work = events[np.isin(events["kind"], DEVICE_WORK) & launched]
    kernels = work["wall"][work["kind"] == Kind.KERNEL]
    if not count or not len(kernels) or len({trace.tracks[track].device for track in np.unique(work["track"])}) > 1:
        return None
    busy = union(work["start"], work["start"] + work["wall"])
    return GpuWork(
        busy_s=float((busy[:, 1] - busy[:, 0]).sum()) / count / 1e9,
        kernels=len(kernels) / count,
        kernel_s=float(kernels.mean()) / 1e9,
        steps=count,
    )
