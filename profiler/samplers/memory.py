"""Memory of the machine, and space for batches in shared memory."""

import os

from feedline.profiler.samplers.source import OpenFile, Rates, Source, read_file

_KIB = 1024
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Memory(Source):
    """``memory/available`` is the kernel's estimate of the memory available without swapping (MemAvailable of /proc/meminfo);
    ``memory/used`` is the rest. Both are of the machine and ignore a container's own limit."""

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
        return {"memory/used": float(self._bytes(text, b"MemTotal:") - available), "memory/available": float(available)}

    def describe(self) -> dict[str, object]:
        return {"memory_bytes": self._bytes(self._file.read(), b"MemTotal:")}

    def _bytes(self, text: bytes, label: bytes) -> int:
        at = text.find(label)
        if at < 0:
            raise ValueError(f"{self._path} has no {label.decode().rstrip(':')}")
        return int(text[at + len(label) : at + 64].split(None, 1)[0]) * _KIB


class Swap(Source):
    """``memory/swapped_in``: bytes that the machine reads back from swap, for all programs (pswpin of /proc/vmstat, in pages)."""

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
                return self._rates.per_second({"memory/swapped_in": float(int(pages) * _PAGE_BYTES)})
        raise ValueError(f"{self._path} has no pswpin: this kernel has no swap")


class SharedMemory(Source):
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
        return {"shm/size": float(fs.f_blocks * fs.f_frsize), "shm/free": float(fs.f_bavail * fs.f_frsize)}
