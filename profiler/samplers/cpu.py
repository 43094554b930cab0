"""How busy the CPUs of the whole machine are."""

from feedline.profiler.samplers.source import OpenFile, Source


class MachineCpu(Source):
    """Share of all CPUs' time, from the first line of /proc/stat (proc_stat(5); clock ticks since boot).

    ``cpu/machine``: somebody ran. ``cpu/steal``: a virtual CPU was ready to run and the host ran something else.
    """

    name = "cpu"

    def __init__(self, proc: str = "/proc") -> None:
        super().__init__()
        self._path = f"{proc}/stat"
        self._before = (0, 0, 0)

    def prepare(self) -> str | None:
        self.units = {"cpu/machine": "1", "cpu/steal": "1"}
        self._file = OpenFile(self._path)
        self._before = self._ticks()
        return None

    def read(self) -> dict[str, float]:
        before, now = self._before, self._ticks()
        self._before = now
        busy, steal, total = (b - a for a, b in zip(before, now, strict=True))
        # idle and iowait of a CPU that goes offline are known to run backwards
        return {"cpu/machine": min(1.0, max(0, busy) / total), "cpu/steal": min(1.0, max(0, steal) / total)} if total > 0 else {}

    def _ticks(self) -> tuple[int, int, int]:
        """Busy, stolen, and all ticks of all CPUs. Guest time is part of user time."""
        first = self._file.read().split(b"\n", 1)[0].split()
        user, nice, system, idle, iowait, irq, softirq, steal = map(int, first[1:9])
        busy = user + nice + system + irq + softirq
        return busy, steal, busy + idle + iowait + steal
