"""The list of sources that a run samples."""

from feedline.profiler.samplers.cpu import MachineCpu
from feedline.profiler.samplers.disk import Disk
from feedline.profiler.samplers.gpu import Gpu
from feedline.profiler.samplers.memory import Memory, SharedMemory, Swap
from feedline.profiler.samplers.pressure import Pressure
from feedline.profiler.samplers.processes import Processes
from feedline.profiler.samplers.source import Source
from feedline.profiler.samplers.throttling import CgroupThrottling


def default_sources() -> list[Source]:
    """One instance of each source."""
    return [MachineCpu(), Processes(), CgroupThrottling(), Pressure(), Disk(), Memory(), Swap(), SharedMemory(), Gpu()]
