"""CPU and memory limits of this process's control groups.

It reads versions 1 and 2, hybrid systems, containers with and without a cgroup namespace.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from feedline.profiler import message
from feedline.profiler.message import Message
from feedline.profiler.samplers.source import GaugeSource, Rates, read_file, reason_of

_ROOT = Path("/")


@dataclass(frozen=True)
class _Throttling:
    """Counters since the group was created."""

    periods: int  # enforcement periods in which the group ran
    throttled: int  # of those, periods that it was stopped in
    stopped_s: float  # summed over CPUs


@dataclass(frozen=True)
class _Level:
    """A group that limits the CPU or memory of this process: its own, or a parent of it."""

    folder: Path
    version: int

    def quota_cpus(self) -> float | None:
        """Return the CPU seconds per second that the group may use; None without a quota.

        Raises:
            OSError: the files are not there (the root group has none) or must not be read.
        """
        if self.version == 2:
            quota, period = read_file(str(self.folder / "cpu.max")).split()
        else:
            quota = read_file(str(self.folder / "cpu.cfs_quota_us")).strip()
            period = read_file(str(self.folder / "cpu.cfs_period_us"))
        return None if quota in (b"max", b"-1") else int(quota) / int(period)

    def throttling(self) -> _Throttling:
        """Return the throttling by the quota so far.

        Raises:
            OSError, KeyError: cpu.stat is gone or has no such counters.
        """
        words = read_file(str(self.folder / "cpu.stat")).split()
        stat = {name: int(value) for name, value in zip(words[::2], words[1::2], strict=True)}
        stopped_s = (
            stat[b"throttled_usec"] * 1e-6 if self.version == 2 else stat[b"throttled_time"] * 1e-9
        )
        return _Throttling(stat[b"nr_periods"], stat[b"nr_throttled"], stopped_s)

    @property
    def events(self) -> Path:
        """Where the processes are counted that were killed because memory was full."""
        return self.folder / ("memory.events" if self.version == 2 else "memory.oom_control")

    def hits(self) -> int | None:
        """Return how often memory had to be freed because of its limit; None: not known."""
        if self.version == 2:
            return _counts(self.events).get(b"max")
        try:
            return int(read_file(str(self.folder / "memory.failcnt")))
        except (OSError, ValueError):
            return None


def _levels(root: Path = _ROOT, controller: str = "cpu") -> list[_Level]:
    """Return the control groups of this process with a controller, innermost first.

    Each comes once even if mounted several times. Groups that are not visible from here are left
    out.

    Args:
        controller: cpu or memory.

    Raises:
        OSError: /proc/self/cgroup or /proc/self/mountinfo cannot be read.
    """
    levels = []
    memberships = [line.split(":", 2) for line in _lines(root / "proc/self/cgroup")]
    for mount_root, mount_point, version in _mounts(root, controller):
        for _, controllers, group in memberships:
            if (version == 1 and controller in controllers.split(",")) or (
                version == 2 and not controllers
            ):
                mount, below = root / mount_point.lstrip("/"), _below(mount_root, group)
                levels += _upwards(mount, below, version, controller)
    return list({_identity(level.folder): level for level in levels}.values())


def _lines(path: Path) -> list[str]:
    """Return the lines of a file that contains paths, which may be any bytes. Raises OSError."""
    return [os.fsdecode(line) for line in read_file(str(path)).splitlines()]


def cpu_quota(root: Path = _ROOT) -> float | None:
    """Return the smallest CPU quota of this process's groups and their parents, in CPUs.

    None: there is none or it is not visible.
    """
    quotas = [
        quota for level in _levels_or_none(root) if (quota := _quota_or_none(level)) is not None
    ]
    return min(quotas, default=None)


def effective_cpus(root: Path = _ROOT) -> float:
    """Return how many CPUs this process may use.

    They are those of its affinity mask, limited by ``cpu_quota``.
    """
    allowed = float(len(os.sched_getaffinity(0)))
    quota = cpu_quota(root)
    return allowed if quota is None else min(allowed, quota)


def _mounts(root: Path, controller: str) -> list[tuple[str, str, int]]:
    """Return (root within the hierarchy, mount point, version) of what can limit CPU or memory.

    The fields are those of proc_pid_mountinfo(5).
    """
    mounts = []
    for line in _lines(root / "proc/self/mountinfo"):
        fields, _, more = line.partition(" - ")
        kind, _, options = (more.split(" ", 2) + ["", ""])[:3]
        if kind == "cgroup2" or (kind == "cgroup" and controller in options.split(",")):
            mounts.append((fields.split()[3], fields.split()[4], 2 if kind == "cgroup2" else 1))
    return mounts


def _below(mount_root: str, group: str) -> str:
    """Return where the group lies below the mount point.

    A container may see its group's path from the host, or only ``/..`` paths.
    """
    if mount_root != "/":
        if group != mount_root and not group.startswith(mount_root + "/"):
            return ""
        group = group[len(mount_root) :]
    return "" if ".." in group.split("/") else group.strip("/")


def _identity(folder: Path) -> tuple[int, int]:
    stat = os.stat(folder)
    return stat.st_dev, stat.st_ino


def _upwards(mount: Path, below: str, version: int, controller: str) -> list[_Level]:
    folder, levels = mount / below, []
    while True:
        if os.path.exists(folder / f"{controller}.stat"):
            levels.append(_Level(folder, version))
        if folder == mount:
            return levels
        folder = folder.parent


def _levels_or_none(root: Path) -> list[_Level]:
    try:
        return _levels(root)
    except (OSError, ValueError, IndexError):
        return []


def _quota_or_none(level: _Level) -> float | None:
    try:
        return level.quota_cpus()
    except (OSError, ValueError):
        return None


class CgroupThrottling(GaugeSource):
    """All groups of this process that have a quota, combined.

    cgroup/throttled: seconds per second stopped, summed over CPUs and groups, so it can be above 1.
    Everything in the groups counts, this
        process and its neighbors.
    cgroup/throttled_periods: share of the enforcement periods in which a group was stopped.
    """

    name = "cgroup"

    def __init__(self, root: Path = Path("/")) -> None:
        super().__init__()
        self._root = root
        self._limited: list[_Level] = []
        self._rates = Rates()

    def prepare(self) -> str | None:
        levels = _levels(self._root)
        if not levels:
            return (
                f"{self._root / 'proc/self/cgroup'}: no visible control group with a CPU controller"
            )
        for number, level in enumerate(levels, 1):
            try:
                if level.quota_cpus() is not None:
                    level.throttling()
                    self._limited.append(level)
            except (
                FileNotFoundError
            ):  # the root group, or one where the controller is off: it has no quota
                continue
            except (OSError, ValueError, KeyError) as error:
                # not its path: services and slices are named after users, hosts and repositories
                self.missing[f"cgroup, level {number}"] = reason_of(error)
        if not self._limited:
            none = Message("no control group has a CPU quota", message.NO_CPU_QUOTA)
            return "; ".join(self.missing.values()) or none
        self.units = {"cgroup/throttled": "s/s", "cgroup/throttled_periods": "1"}
        self.read()
        return None

    def read(self) -> dict[str, float]:
        now = [level.throttling() for level in self._limited]
        rates = self._rates.per_second(
            {
                "stopped": sum(level.stopped_s for level in now),
                "throttled": sum(level.throttled for level in now),
                "periods": sum(level.periods for level in now),
            }
        )
        if len(rates) < 3:
            return {}
        share = rates["throttled"] / rates["periods"] if rates["periods"] else 0.0
        return {"cgroup/throttled": rates["stopped"], "cgroup/throttled_periods": share}


_NO_LIMIT = 1 << 60  # version 1 has the largest number of pages there can be


def _memory_limit(level: _Level) -> int | None:
    """Return the bytes that a group may use; None: as many as there are, or that is not visible."""
    name = "memory.max" if level.version == 2 else "memory.limit_in_bytes"
    try:
        text = read_file(str(level.folder / name)).strip()
    except OSError:
        return None
    return None if text == b"max" or int(text) >= _NO_LIMIT else int(text)


class CgroupMemory(GaugeSource):
    """The group of this process with the smallest memory limit.

    cgroup/memory: bytes of all its processes that cannot be dropped: without files in the page
    cache. cgroup/memory_limit: at which the kernel kills a process of it.
    """

    name = "cgroup memory"

    def __init__(self, root: Path = _ROOT) -> None:
        super().__init__()
        self._root = root

    def prepare(self) -> str | None:
        levels = _levels(self._root, "memory")
        limits = [(limit, level) for level in levels if (limit := _memory_limit(level)) is not None]
        if not limits:
            return Message("no control group limits the memory", message.NO_MEMORY_LIMIT)
        self._limit, self._level = min(limits, key=lambda pair: pair[0])
        self.units = {"cgroup/memory": "B", "cgroup/memory_limit": "B"}
        self.read()
        return None

    def read(self) -> dict[str, float]:
        words = read_file(str(self._level.folder / "memory.stat")).split()
        stat = {name: int(value) for name, value in zip(words[::2], words[1::2], strict=True)}
        names = (b"anon", b"shmem") if self._level.version == 2 else (b"total_rss", b"total_shmem")
        used = sum(stat.get(name, 0) for name in names)
        return {"cgroup/memory": float(used), "cgroup/memory_limit": float(self._limit)}


@dataclass(frozen=True)
class MemoryEvents:
    """What the kernel has counted where memory was full; None: it does not tell.

    Attributes:
        kills: processes of this process's group that it killed for that.
        machine_kills: those of the whole machine.
        limit_bytes: the smallest limit of this process's groups.
        limit_hits: how often memory had to be freed because of that limit.
    """

    kills: int | None = None
    machine_kills: int | None = None
    limit_bytes: int | None = None
    limit_hits: int | None = None

    @classmethod
    def now(cls, root: Path = _ROOT) -> "MemoryEvents":
        """Return what it has counted so far. It never raises an exception."""
        machine = _counts(root / "proc/vmstat").get(b"oom_kill")
        try:
            levels = _levels(root, "memory")
            limits = [(limit, of) for of in levels if (limit := _memory_limit(of)) is not None]
        except (OSError, ValueError, IndexError):
            return cls(machine_kills=machine)
        own = _counts(levels[0].events).get(b"oom_kill") if levels else None
        if not limits:
            return cls(own, machine)
        limit, narrowest = min(limits, key=lambda pair: pair[0])
        return cls(own, machine, limit, narrowest.hits())

    def since(self, before: "MemoryEvents") -> dict[str, int]:
        """Return what came to it, by name, and the limit; what is not known is left out."""
        counted = {
            "kills": (before.kills, self.kills),
            "machine_kills": (before.machine_kills, self.machine_kills),
            "limit_hits": (before.limit_hits, self.limit_hits),
        }
        known = {
            name: now - then
            for name, (then, now) in counted.items()
            if then is not None and now is not None and now >= then
        }
        return known if self.limit_bytes is None else {**known, "limit_bytes": self.limit_bytes}


def _counts(path: Path) -> dict[bytes, int]:
    """Return the numbers of a file with a name and a number in each line; {}: there is none."""
    try:
        words = read_file(str(path)).split()
        return {name: int(value) for name, value in zip(words[::2], words[1::2], strict=True)}
    except (OSError, ValueError):
        return {}
