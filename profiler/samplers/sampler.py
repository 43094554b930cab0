"""The thread that samples the machine's gauges while the training runs."""

import os
import resource
import signal
import threading
from collections.abc import Sequence
from pathlib import Path

from feedline.profiler import clock, masks
from feedline.profiler.samplers.blocked_threads import BlockedThreads
from feedline.profiler.samplers.cgroup import CgroupMemory, CgroupThrottling
from feedline.profiler.samplers.gauge_file import MAX_BYTES, GaugeLegend, GaugeWriter
from feedline.profiler.samplers.machine import (
    Disk,
    MachineCpu,
    MachineMemory,
    Pressure,
    SharedMemory,
)
from feedline.profiler.samplers.nvml import NvmlGpus
from feedline.profiler.samplers.processes import PrivateMemory, ProcessTree
from feedline.profiler.samplers.source import GaugeSource, Rates, read_file, reason_of
from feedline.profiler.stacks.stack_sampler import StackSampling

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class _Swap(GaugeSource):
    """``memory/swapped_in``: bytes that the machine reads back from swap.

    It is for all programs (pswpin of /proc/vmstat, in pages).
    """

    name = "swap"

    def __init__(self, proc: str = "/proc") -> None:
        super().__init__()
        self._path = f"{proc}/vmstat"
        self._rates = Rates()

    def prepare(self) -> str | None:
        self.units = {"memory/swapped_in": "B/s"}
        self.read()
        return None

    def read(self) -> dict[str, float]:
        for line in read_file(self._path).splitlines():
            label, _, pages = line.partition(b" ")
            if label == b"pswpin":
                return self._rates.per_second(
                    {"memory/swapped_in": float(int(pages) * _PAGE_BYTES)}
                )
        raise ValueError(f"{self._path} has no pswpin: this kernel has no swap")


_JOIN_S = 0.5
#: Of a period, by which samples come later, in turns: at a distance that is a multiple of a step's,
#: all of them would be of the same moment of a step, or go through it slowly.
_OFFSETS, _GOLDEN = 0.5, 0.618034
_SHORTEST_NS = 100_000_000  # CPU time is known to 10 ms
# times as often in the beginning: a training of two seconds would have one reading, or none
_EARLY = 4
_FEW_DESCRIPTORS = 128  # the sources hold about 10, and a loader's worker needs about 8
_OWN_FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT}
_SELF = "sampler"  # the name under which the thread reports that it stopped


class Sampler(threading.Thread):
    """Samples every source once per period into one file, from ``start()`` to ``stop()``.

    Its errors never reach the training.

    Args:
        path: the gauge file to create; its legend is written beside it (gauge_file.py).
        sources: what to sample; None: ``default_sources()``.
        period_s: seconds between samples. It doubles whenever the file is full.
        max_bytes: bound on the file.
        early: number of initial samples that are _EARLY times as frequent.
        looks: made between the samples, on their own schedule.
        stacks: started by the thread, and told of new threads once per sample.

    Raises:
        ValueError: ``period_s`` is not positive.

    Attributes:
        absent: source or gauge -> why it is not, or no longer, sampled. "sampler": the thread
            itself gave up.
        machine: facts that sources gave once (``Source.describe``).
        ready: set as soon as all sources are probed, ``absent`` and ``machine`` are filled and the
            files are there, or cannot be made.
    """

    def __init__(
        self,
        path: Path,
        sources: Sequence[GaugeSource] | None = None,
        period_s: float = 1.0,
        max_bytes: int = MAX_BYTES,
        early: int = 0,
        looks: BlockedThreads | None = None,
        stacks: StackSampling | None = None,
    ) -> None:
        if period_s <= 0:
            raise ValueError(f"period_s is {period_s}: it must be above 0")
        super().__init__(name="feedline-sampler", daemon=True)
        self.path = path
        self.absent: dict[str, str] = {}
        self.machine: dict[str, object] = {}
        self.ready = threading.Event()
        self._sources = default_sources() if sources is None else list(sources)
        self._base_period_s = period_s
        self._max_bytes = max_bytes
        self._early = early
        self._looks, self._stacks = looks, stacks
        self._pid = os.getpid()
        self._ending = threading.Event()
        self._numbers: dict[str, int] = {}
        self._legend = GaugeLegend(absent=self.absent, machine=self.machine)
        self._writer: GaugeWriter | None = None

    @property
    def period_s(self) -> float:
        """Current time between samples, seconds."""
        return self._base_period_s * (1 << (self._writer.thinned if self._writer else 0))

    def start(self) -> None:
        """Start.

        If no thread can be started, or the training needs the file descriptors, ``absent`` has the
        reason.
        """
        allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        try:
            if 0 <= allowed < _FEW_DESCRIPTORS:
                raise RuntimeError(
                    f"the process may open only {allowed} file descriptors (ulimit -n)"
                )
            super().start()
        except RuntimeError as error:
            self._give_up(error)

    def stop(self) -> None:
        """Stop after the current sample; returns within _JOIN_S seconds even if a driver hangs."""
        self._ending.set()
        if self.is_alive():
            self.join(_JOIN_S)

    def run(self) -> None:
        """Run the thread, which calls this."""
        try:
            # A signal that the training blocks, to wait for it, must not find a thread that takes
            # it.
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _OWN_FAULTS)
            if self._stacks is not None:
                self._stacks.tick()
            self.prepare()
            self._sample()
        except Exception as error:
            self._give_up(error)
        finally:
            self._close()

    def prepare(self) -> None:
        """Probe the sources, create the file and write its legend.

        The thread calls it; otherwise only tests and benchmarks do.

        Raises:
            OSError: the files cannot be made.
        """
        present = []
        for source in self._sources:
            why = source.probe()
            self.absent.update(
                source.missing if why is None else {**source.missing, source.name: why}
            )
            if why is None:
                present.append(source)
                self._legend.gauges += source.units.items()
                self._describe(source)
        self._sources = present
        self._numbers = {name: number for number, (name, _) in enumerate(self._legend.gauges)}
        self._writer = GaugeWriter(self.path, self._max_bytes)
        self._legend.write(self.path)
        self.ready.set()

    def tick(self) -> None:
        """Take one sample of every source.

        The thread calls it; otherwise only tests and benchmarks do.

        Raises:
            OSError: the file cannot grow.
        """
        if os.getpid() != self._pid:  # a forked child has no sampler, only a copy of this object
            return
        if self._stacks is not None:
            self._stacks.tick()
        now = clock.wall_ns()
        rows: list[tuple[int, float]] = []
        for source in self._sources.copy():
            try:
                rows += [
                    (self._number(name, source), float(value))
                    for name, value in source.read().items()
                ]
            except Exception as error:
                self._drop(source, error)
        if rows and self._writer:
            self._writer.append(now, rows)

    def _number(self, name: str, source: GaugeSource) -> int:
        """Return the number of a gauge; one that has come since the start gets the next.

        Raises:
            OSError: the legend cannot be written.
        """
        if name not in self._numbers:
            self._numbers[name] = len(self._legend.gauges)
            self._legend.gauges.append((name, source.units[name]))
            self._legend.write(self.path)
        return self._numbers[name]

    def _sample(self) -> None:
        """Tick until ``stop``. Ticks that could not be on time are left out, not made up for."""
        begin, ticks = clock.wall_ns(), 0
        last = begin
        due = begin + self._period_ns(ticks)
        while not self._wait_until(due + self._offset_ns(ticks)):
            last = clock.wall_ns()
            self.tick()
            ticks += 1
            period = self._period_ns(ticks)
            due += period * max(1, -(-(clock.wall_ns() - due) // period))
        # a run shorter than a period, or the rest of one
        if ticks == 0 or clock.wall_ns() - last > _SHORTEST_NS:
            self.tick()

    def _offset_ns(self, ticks: int) -> int:
        return int(_OFFSETS * self._period_ns(ticks) * (ticks * _GOLDEN % 1.0))

    def _period_ns(self, ticks: int) -> int:
        return int(self.period_s * 1e9) // (_EARLY if ticks < self._early else 1)

    def _wait_until(self, due: int) -> bool:
        """Look at threads meanwhile. True: ``stop`` was called."""
        while (looks := self._looks) is not None and looks.due_ns < due:
            if self._ending.wait(max(0, looks.due_ns - clock.wall_ns()) * 1e-9):
                return True
            looks.look()
        return self._ending.wait(max(0, due - clock.wall_ns()) * 1e-9)

    def _describe(self, source: GaugeSource) -> None:
        try:
            self.machine.update(source.describe())
        except Exception as error:
            self.absent[f"facts of {source.name}"] = reason_of(error)

    def _drop(self, source: GaugeSource, error: Exception) -> None:
        self._sources.remove(source)
        self.absent[source.name] = f"no longer sampled: {reason_of(error)}"
        self._try_to_write_legend()

    def _give_up(self, error: Exception) -> None:
        self.absent[_SELF] = masks.text(f"{self.path}: stopped sampling: {reason_of(error)}")
        self.ready.set()
        self._try_to_write_legend()

    def _try_to_write_legend(self) -> None:
        if self._writer is None:  # what lies at that path, if anything, is not ours
            return
        try:
            self._legend.write(self.path)
        except OSError:
            # often the very reason for giving up; ``absent`` has it, and the legend of the start
            # stays
            pass

    def _close(self) -> None:
        try:
            if self._writer:
                self._writer.close()
        except Exception as error:
            self._give_up(error)


def default_sources() -> list[GaugeSource]:
    """Return one instance of each source."""
    return [
        MachineCpu(),
        ProcessTree(),
        PrivateMemory(),
        CgroupThrottling(),
        CgroupMemory(),
        Pressure(),
        Disk(),
        MachineMemory(),
        _Swap(),
        SharedMemory(),
        NvmlGpus(),
    ]
