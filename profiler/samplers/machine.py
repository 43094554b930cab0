"""The machine's CPUs, memory, disks and pressure: sources of gauges that read /proc and /sys."""

import os
from collections.abc import Iterable
from pathlib import Path

from feedline.profiler import message
from feedline.profiler.message import Message
from feedline.profiler.samplers.source import GaugeSource, OpenFile, Rates, read_file, reason_of

_ALL_CPUS = b"cpu"


class MachineCpu(GaugeSource):
    """Shares of CPU time, from /proc/stat (proc_stat(5); clock ticks since boot).

    ``cpu/machine``: of all CPUs, something ran. ``cpu/steal``: a virtual CPU was ready to run and
    the host ran something else. ``cpu/allowed``: as ``cpu/machine``, of the CPUs in this process's
    affinity mask, where it leaves some out.

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
        there = [
            line.split(None, 1)[0]
            for line in read_file(self._path).splitlines()
            if line.startswith(_ALL_CPUS)
        ]
        mask = [
            name for number in self._allowed if (name := _ALL_CPUS + str(number).encode()) in there
        ]
        if mask and len(mask) < len(there) - 1:
            self._mask = mask
            self.units["cpu/allowed"] = "1"
        self._before = self._ticks()
        return None

    def read(self) -> dict[str, float]:
        before, now = self._before, self._ticks()
        self._before = now
        spent = {
            name: tuple(b - a for a, b in zip(before[name], now[name], strict=True))
            for name in now
            if name in before
        }
        busy, steal, total = spent[_ALL_CPUS]
        # idle and iowait of a CPU that goes offline are known to run backwards
        shares = (
            {
                "cpu/machine": min(1.0, max(0, busy) / total),
                "cpu/steal": min(1.0, max(0, steal) / total),
            }
            if total > 0
            else {}
        )
        busy, total = (
            sum(spent[name][index] for name in self._mask if name in spent) for index in (0, 2)
        )
        return shares | ({"cpu/allowed": min(1.0, max(0, busy) / total)} if total > 0 else {})

    def _ticks(self) -> dict[bytes, tuple[int, int, int]]:
        """Return busy, stolen, and all ticks of all CPUs together and of each in the mask.

        Guest time is part of user time.
        """
        if not self._mask:
            lines = [self._file.read().split(b"\n", 1)[0].split()]
        else:  # a machine's list of CPUs can be longer than one reading
            lines = [
                fields
                for line in read_file(self._path).splitlines()
                if (fields := line.split())[0] in (_ALL_CPUS, *self._mask)
            ]
        found = {}
        for name, *ticks in lines:
            user, nice, system, idle, iowait, irq, softirq, steal = map(int, ticks[:8])
            busy = user + nice + system + irq + softirq
            found[name] = (busy, steal, busy + idle + iowait + steal)
        return found


_KIB = 1024


class MachineMemory(GaugeSource):
    """Memory of the machine, whatever a container's own limit is.

    ``memory/available`` is the kernel's estimate of the memory available without swapping
    (MemAvailable of /proc/meminfo); ``memory/used`` is the rest.
    """

    name = "memory"

    def __init__(self, proc: str = "/proc") -> None:
        super().__init__()
        self._path = f"{proc}/meminfo"

    def prepare(self) -> str | None:
        self._file = OpenFile(self._path)
        self.units = {"memory/used": "B", "memory/available": "B"}
        self.read()
        return None

    def read(self) -> dict[str, float]:
        text = self._file.read()
        available = self._bytes(text, b"MemAvailable:")
        return {
            "memory/used": float(self._bytes(text, b"MemTotal:") - available),
            "memory/available": float(available),
        }

    def describe(self) -> dict[str, object]:
        return {"memory_bytes": self._bytes(self._file.read(), b"MemTotal:")}

    def _bytes(self, text: bytes, label: bytes) -> int:
        at = text.find(label)
        if at < 0:
            raise ValueError(f"{self._path} has no {label.decode().rstrip(':')}")
        return int(text[at + len(label) : at + 64].split(None, 1)[0]) * _KIB


class SharedMemory(GaugeSource):
    """Size and free space of /dev/shm, where loader workers put batches."""

    name = "shm"

    def __init__(self, path: str = "/dev/shm") -> None:
        super().__init__()
        self._path = path

    def prepare(self) -> str | None:
        self.units = {"shm/size": "B", "shm/free": "B"}
        self.read()
        return None

    def read(self) -> dict[str, float]:
        fs = os.statvfs(self._path)
        return {
            "shm/size": float(fs.f_blocks * fs.f_frsize),
            "shm/free": float(fs.f_bavail * fs.f_frsize),
        }


# of /proc/diskstats, whatever the disk's own sector is (Linux
# Documentation/admin-guide/iostats.rst)
_SECTOR_BYTES = 512
_MILLISECOND_S = 1e-3


class Disk(GaugeSource):
    """All physical disks.

    disk/read: bytes per second from all of them. disk/NAME/read: from one. disk/NAME/busy: share of
    the time with at least one request under way. 1.0 is not "full" for a disk that serves many at a
    time (NVMe).
    """

    name = "disk"

    def __init__(self, root: str = "/") -> None:
        super().__init__()
        self._root = Path(root)
        self._stats = str(self._root / "proc/diskstats")
        self._disks: set[bytes] = set()
        self._rates = Rates()

    def prepare(self) -> str | None:
        disks = _physical_disks(self._root)
        if not disks:
            return Message(f"{self._root / 'sys/block'}: no physical disk in it", message.NO_DISK)
        self._disks = {disk.encode() for disk in disks}
        self.units = {"disk/read": "B/s"}
        for name in disks:
            self.units.update({f"disk/{name}/read": "B/s", f"disk/{name}/busy": "1"})
        self.read()
        return None

    def read(self) -> dict[str, float]:
        rates = self._rates.per_second(self._counters())
        for name in rates:
            if name.endswith("/busy"):
                rates[name] = min(1.0, rates[name])
        return rates

    def _counters(self) -> dict[str, float]:
        """Return the bytes read and seconds busy since boot."""
        counters: dict[str, float] = {"disk/read": 0.0}
        for line in read_file(self._stats).splitlines():
            fields = line.split(None, 13)
            if fields[2] not in self._disks:
                continue
            name, nbytes = fields[2].decode(), int(fields[5]) * _SECTOR_BYTES
            counters[f"disk/{name}/read"] = nbytes
            counters[f"disk/{name}/busy"] = int(fields[12]) * _MILLISECOND_S
            counters["disk/read"] += nbytes
        if len(counters) == 1:
            raise ValueError(
                f"{self._stats} lists none of "
                f"{', '.join(sorted(disk.decode() for disk in self._disks))}"
            )
        return counters


def _physical_disks(root: Path = Path("/")) -> list[str]:
    """Return the names of the physical (or a hypervisor's) disks.

    There are no loop, RAM, mapped or RAID devices among them, and no empty drives.

    Raises:
        OSError: /sys/block cannot be listed.
    """
    return sorted(
        disk.name
        for disk in (root / "sys/block").iterdir()
        if (disk / "device").exists() and _flag(disk / "size") and not _flag(disk / "hidden")
    )


def _flag(path: Path) -> bool:
    """Return whether the file holds a number other than 0.

    A path of a multi-path NVMe disk is "hidden"; its traffic counts at the disk.
    """
    try:
        return int(path.read_text()) != 0
    except (OSError, ValueError):
        return False


#: Linux Documentation/accounting/psi.rst. "full" of the CPU has no meaning for a whole machine
#: (kernel commit 890d550d reports zeroes).
_PRESSURE_LINES = {"cpu": (b"some",), "io": (b"some", b"full"), "memory": (b"some", b"full")}
_MICROSECOND_S = 1e-6


class Pressure(GaugeSource):
    """``pressure/io_some``: at least one task waited.

    ``pressure/io_full``: all non-idle tasks waited. Shares of time.
    """

    name = "pressure"

    def __init__(self, proc: str = "/proc") -> None:
        super().__init__()
        self._proc = proc
        self._files: dict[str, OpenFile] = {}
        self._rates = Rates()

    def prepare(self) -> str | None:
        for kind in _PRESSURE_LINES:
            try:
                file = OpenFile(f"{self._proc}/pressure/{kind}")
                self.units.update(dict.fromkeys(_stalled_s(kind, file), "1"))
            except (OSError, ValueError, KeyError) as error:
                self.missing[f"pressure/{kind}"] = reason_of(error)
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
    """Return the seconds stalled since boot.

    ``some avg10=0.00 avg60=0.00 avg300=0.00 total=<microseconds>``.
    """
    totals = {
        line.split(b" ", 1)[0]: int(line.rsplit(b"total=", 1)[1])
        for line in file.read().splitlines()
        if b"total=" in line
    }
    return {
        f"pressure/{kind}_{line.decode()}": totals[line] * _MICROSECOND_S
        for line in _PRESSURE_LINES[kind]
    }
