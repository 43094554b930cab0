"""Bytes read from the disks, and their utilisation."""

from pathlib import Path

from feedline.profiler import reasons
from feedline.profiler.message import Message
from feedline.profiler.samplers.source import Rates, Source, read_file

_SECTOR_BYTES = 512  # of /proc/diskstats, whatever the disk's own sector is (Linux Documentation/admin-guide/iostats.rst)
_MILLISECOND_S = 1e-3


class Disk(Source):
    """All physical disks.

    disk/read: bytes per second from all of them. disk/NAME/read: from one.
    disk/NAME/busy: share of the time with at least one request under way. 1.0 is not "full" for a disk that serves many at a time (NVMe).
    """

    name = "disk"

    def __init__(self, root: str = "/") -> None:
        super().__init__()
        self._root = Path(root)
        self._stats = str(self._root / "proc/diskstats")
        self._disks: set[bytes] = set()
        self._rates = Rates()

    def prepare(self) -> str | None:
        disks = physical_disks(self._root)
        if not disks:
            return Message(f"{self._root / 'sys/block'}: no physical disk in it", reasons.NO_DISK)
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
        """Bytes read and seconds busy since boot."""
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
            raise ValueError(f"{self._stats} lists none of {', '.join(sorted(disk.decode() for disk in self._disks))}")
        return counters


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
