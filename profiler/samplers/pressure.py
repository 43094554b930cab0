"""Pressure stall information: share of time for which tasks of the machine were stalled on CPU, disk or memory."""

from feedline.profiler.samplers.source import OpenFile, Rates, Source, reason

#: Linux Documentation/accounting/psi.rst. "full" of the CPU has no meaning for a whole machine (kernel commit 890d550d reports zeroes).
_LINES = {"cpu": (b"some",), "io": (b"some", b"full"), "memory": (b"some", b"full")}
_MICROSECOND_S = 1e-6


class Pressure(Source):
    """``pressure/io_some``: at least one task waited; ``pressure/io_full``: all non-idle tasks waited. Shares of time."""

    name = "pressure"

    def __init__(self, proc: str = "/proc") -> None:
        super().__init__()
        self._proc = proc
        self._files: dict[str, OpenFile] = {}
        self._rates = Rates()

    def prepare(self) -> str | None:
        for kind in _LINES:
            try:
                file = OpenFile(f"{self._proc}/pressure/{kind}")
                self.units.update(dict.fromkeys(_stalled_s(kind, file), "1"))
            except (OSError, ValueError, KeyError) as error:
                self.missing[f"pressure/{kind}"] = reason(error)
            else:
                self._files[kind] = file
        if not self._files:
            why = "; ".join(self.missing.values())
            self.missing = {}
            return why
        self.read()
        return None

    def read(self) -> dict[str, float]:
        stalled: dict[str, float] = {}
        for kind, file in self._files.items():
            stalled.update(_stalled_s(kind, file))
        return {name: min(1.0, share) for name, share in self._rates.per_second(stalled).items()}


def _stalled_s(kind: str, file: OpenFile) -> dict[str, float]:
    """Seconds stalled since boot: ``some avg10=0.00 avg60=0.00 avg300=0.00 total=<microseconds>``."""
    totals = {line.split(b" ", 1)[0]: int(line.rsplit(b"total=", 1)[1]) for line in file.read().splitlines() if b"total=" in line}
    return {f"pressure/{kind}_{line.decode()}": totals[line] * _MICROSECOND_S for line in _LINES[kind]}
