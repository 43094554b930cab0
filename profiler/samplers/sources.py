"""The list of sources that a run samples."""

from collections.abc import Iterable
from pathlib import Path

from feedline.profiler.samplers.cpu import MachineCpu
from feedline.profiler.samplers.disk import Disk
from feedline.profiler.samplers.gpu import Gpu
from feedline.profiler.samplers.memory import Memory, SharedMemory, Swap
from feedline.profiler.samplers.pressure import Pressure
from feedline.profiler.samplers.processes import Processes
from feedline.profiler.samplers.source import Source
from feedline.profiler.samplers.throttling import CgroupThrottling


def default_sources(paths: Iterable[Path] = ()) -> list[Source]:
    """One of each. ``paths``: files whose disks to watch; none: all physical disks."""
    return [MachineCpu(), Processes(), CgroupThrottling(), Pressure(), Disk(paths), Memory(), Swap(), SharedMemory(), Gpu()]
