"""Bytes read from the disks, and their utilisation."""

import os
from collections.abc import Iterable
from pathlib import Path

from feedline.profiler import masks, reasons
from feedline.profiler.message import Message
from feedline.profiler.samplers.source import Rates, Source, read_file

SECTOR_BYTES = 512  # of /proc/diskstats, whatever the disk's own sector is (Linux Documentation/admin-guide/iostats.rst)
MILLISECOND_S = 1e-3


class Disk(Source):
    """The disks that hold the given paths, or all physical ones.

    disk/read: bytes per second from all of them. disk/NAME/read: from one.
    disk/NAME/busy: share of the time with at least one request under way. 1.0 is not "full" for a disk that serves many at a time (NVMe).
    """

    name = "disk"

    def __init__(self, paths: Iterable[Path] = (), root: str = "/") -> None:
        super().__init__()
        self._paths = list(paths)
        self._root = Path(root)
        self._stats = str(self._root / "proc/diskstats")
        self._disks: set[bytes] = set()
        self._rates = Rates()

    def prepare(self) -> str | None:
        disks = set()
        for path in self._paths:
            disk = disk_of(path, self._root)
            if disk:
                disks.add(disk)
            else:
                why = f"{masks.path(path)}: not on a block device of this machine"
                self.missing[f"disk of {masks.path(path)}"] = Message(why, reasons.NOT_ON_A_DISK)
        disks = disks or set(physical_disks(self._root))
        if not disks:
            return Message(f"{self._root / 'sys/block'}: no physical disk in it", reasons.NO_DISK)
        self._disks = {disk.encode() for disk in disks}
        self.units = {"disk/read": "B/s"}
        for name in sorted(disks):
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
        """Bytes read and seconds busy since boot."""
        counters: dict[str, float] = {"disk/read": 0.0}
        for line in read_file(self._stats).splitlines():
            fields = line.split(None, 13)
            if fields[2] not in self._disks:
                continue
            name, nbytes = fields[2].decode(), int(fields[5]) * SECTOR_BYTES
            counters[f"disk/{name}/read"] = nbytes
            counters[f"disk/{name}/busy"] = int(fields[12]) * MILLISECOND_S
            counters["disk/read"] += nbytes
        if len(counters) == 1:
            raise ValueError(f"{self._stats} lists none of {', '.join(sorted(disk.decode() for disk in self._disks))}")
        return counters


def disk_of(path: Path, root: Path = Path("/")) -> str | None:
    """Name of the disk that holds a file (for a partition: the whole disk; for LVM, LUKS and RAID: the mapped device).

    None for network, overlay and memory file systems, and where the file does not exist.
    """
    try:
        device = os.stat(path).st_dev
    except OSError:
        return None
    entry = root / f"sys/dev/block/{os.major(device)}:{os.minor(device)}"
    if not entry.exists():
        return None
    entry = entry.resolve()
    return (entry.parent if (entry / "partition").exists() else entry).name


def physical_disks(root: Path = Path("/")) -> list[str]:
    """Names of the physical (or a hypervisor's) disks: no loop, RAM, mapped or RAID devices, no empty drives.

    Raises:
        OSError: /sys/block cannot be listed.
    """
    return sorted(
        disk.name
        for disk in (root / "sys/block").iterdir()
        if (disk / "device").exists() and _flag(disk / "size") and not _flag(disk / "hidden")
    )


def _flag(path: Path) -> bool:
    """Whether the file holds a number other than 0. A path of a multi-path NVMe disk is "hidden"; its traffic counts at the disk."""
    try:
        return int(path.read_text()) != 0
    except (OSError, ValueError):
        return False
