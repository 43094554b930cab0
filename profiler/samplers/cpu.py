"""Utilisation of the CPUs: of the whole machine, and of those that this process may use."""

import os
from collections.abc import Iterable

from feedline.profiler.samplers.source import OpenFile, Source, read_file

_ALL = b"cpu"


class MachineCpu(Source):
    """Shares of CPU time, from /proc/stat (proc_stat(5); clock ticks since boot).

    ``cpu/machine``: of all CPUs, something ran. ``cpu/steal``: a virtual CPU was ready to run and the host ran something else.
    ``cpu/allowed``: as ``cpu/machine``, of the CPUs in this process's affinity mask, where it leaves some out.

    Args:
        allowed: numbers of the CPUs in the mask; None: this process's.
    """

    name = "cpu"

    def __init__(self, proc: str = "/proc", allowed: Iterable[int] | None = None) -> None:
        super().__init__()
        self._path = f"{proc}/stat"
        self._before: dict[bytes, tuple[int, int, int]] = {}
        self._allowed = os.sched_getaffinity(0) if allowed is None else allowed
        self._mask: list[bytes] = []

    def prepare(self) -> str | None:
        self.units = {"cpu/machine": "1", "cpu/steal": "1"}
        self._file = OpenFile(self._path)
        there = [line.split(None, 1)[0] for line in read_file(self._path).splitlines() if line.startswith(_ALL)]
        mask = [name for number in self._allowed if (name := _ALL + str(number).encode()) in there]
        if mask and len(mask) < len(there) - 1:
            self._mask = mask
            self.units["cpu/allowed"] = "1"
        self._before = self._ticks()
        return None

    def read(self) -> dict[str, float]:
        before, now = self._before, self._ticks()
        self._before = now
        spent = {name: tuple(b - a for a, b in zip(before[name], now[name], strict=True)) for name in now if name in before}
        busy, steal, total = spent[_ALL]
        # idle and iowait of a CPU that goes offline are known to run backwards
        found = {"cpu/machine": min(1.0, max(0, busy) / total), "cpu/steal": min(1.0, max(0, steal) / total)} if total > 0 else {}
        busy, total = (sum(spent[name][index] for name in self._mask if name in spent) for index in (0, 2))
        return found | ({"cpu/allowed": min(1.0, max(0, busy) / total)} if total > 0 else {})

    def _ticks(self) -> dict[bytes, tuple[int, int, int]]:
        """Of all CPUs together and of each in the mask: busy, stolen, and all ticks. Guest time is part of user time."""
        if not self._mask:
            lines = [self._file.read().split(b"\n", 1)[0].split()]
        else:  # a machine's list of CPUs can be longer than one reading
            lines = [fields for line in read_file(self._path).splitlines() if (fields := line.split())[0] in (_ALL, *self._mask)]
        found = {}
        for name, *ticks in lines:
            user, nice, system, idle, iowait, irq, softirq, steal = map(int, ticks[:8])
            busy = user + nice + system + irq + softirq
            found[name] = (busy, steal, busy + idle + iowait + steal)
        return found
