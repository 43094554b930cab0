"""What a GPU did in the steps that torch.profiler recorded (profiler/taps/kineto_window.py)."""

import os
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from feedline.analysis.intervals import union
from feedline.analysis.traces.columns import Kind
from feedline.analysis.traces.kinds_of_work import FLOAT32_PRODUCT, named, of_kinds
from feedline.analysis.traces.threads import PROFILER_STEP, threads
from feedline.analysis.traces.windows import read_window
from feedline.profiler.errors import FeedlineError
from feedline.profiler.events import Stage
from feedline.profiler.store.layout import KINETO
from feedline.profiler.store.read import Rank
from feedline.profiler.store.segment_reader import Process


@dataclass(frozen=True)
class GpuWork:
    """What the GPU did in the steps that torch.profiler recorded.

    Attributes:
        busy_s: Time per step during which a kernel, a copy or a fill ran. Unit: s.
        kernels: Kernels per step. Unit: kernels.
        kernel_s: Mean duration of a kernel. Unit: s.
        steps: Steps that were recorded by torch.profiler. Unit: steps.
        ranks: Ranks of the training; with several, the GPU is also busy waiting for the others.
            Unit: ranks.
        float32_products_s: Time per step during which a matrix product of float32 ran that uses no
            tensor cores. Unit: s.
        device: Name of the GPU; empty if torch.profiler did not record it.
    """

    busy_s: float
    kernels: float
    kernel_s: float
    steps: int
    ranks: int = 1
    float32_products_s: float = 0.0
    device: str = ""


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
    steps = len(np.unique(trace.events["name"][of_kinds(trace, Kind.ANNOTATION) & named(trace, PROFILER_STEP)]))
    launched = threads(trace).launcher >= 0
    work, products = trace.events[launched], trace.events[launched & of_kinds(trace, Kind.KERNEL) & named(trace, FLOAT32_PRODUCT)]
    kernels = work["wall"][work["kind"] == Kind.KERNEL]
    devices = {trace.tracks[track].device for track in np.unique(work["track"])}
    if not steps or not len(kernels) or len(devices) > 1:
        return None
    return GpuWork(
        busy_s=_covered_s(work) / steps,
        kernels=len(kernels) / steps,
        kernel_s=float(kernels.mean()) / 1e9,
        steps=steps,
        ranks=ranks if isinstance(ranks := rank.manifest.place.get("world_size"), int) else 1,
        float32_products_s=_covered_s(products) / steps,
        device=trace.devices.get(min(devices), ""),
    )


def _covered_s(events: npt.NDArray[np.void]) -> float:
    """Seconds in which one of them runs, or several."""
    spans = union(events["start"], events["start"] + events["wall"])
    return float((spans[:, 1] - spans[:, 0]).sum()) / 1e9
