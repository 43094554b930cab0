"""CPU limits of this process's control groups: versions 1 and 2, hybrid systems, containers with and without a cgroup namespace."""

import os
from dataclasses import dataclass
from pathlib import Path

from feedline.profiler.samplers.source import read_file

_ROOT = Path("/")


@dataclass(frozen=True)
class Throttling:
    """Counters since the group was created."""

    periods: int  # enforcement periods in which the group ran
    throttled: int  # of those, periods that it was stopped in
    stopped_s: float  # summed over CPUs


@dataclass(frozen=True)
class Level:
    """A group that limits the CPU of this process: its own, or a parent of it."""

    folder: Path
    version: int

    def quota_cpus(self) -> float | None:
        """CPU seconds per second that the group may use; None without a quota.

        Raises:
            OSError: the files are not there (the root group has none) or must not be read.
        """
        if self.version == 2:
            quota, period = read_file(str(self.folder / "cpu.max")).split()
        else:
            quota = read_file(str(self.folder / "cpu.cfs_quota_us")).strip()
            period = read_file(str(self.folder / "cpu.cfs_period_us"))
        return None if quota in (b"max", b"-1") else int(quota) / int(period)

    def throttling(self) -> Throttling:
        """Throttling by the quota so far.

        Raises:
            OSError, KeyError: cpu.stat is gone or has no such counters.
        """
        words = read_file(str(self.folder / "cpu.stat")).split()
        stat = {name: int(value) for name, value in zip(words[::2], words[1::2], strict=True)}
        stopped_s = stat[b"throttled_usec"] * 1e-6 if self.version == 2 else stat[b"throttled_time"] * 1e-9
        return Throttling(stat[b"nr_periods"], stat[b"nr_throttled"], stopped_s)


def levels(root: Path = _ROOT) -> list[Level]:
    """The control groups of this process with a CPU controller, innermost first, each once even if mounted several times. Groups that are
    not visible from here are left out.

    Raises:
        OSError: /proc/self/cgroup or /proc/self/mountinfo cannot be read.
    """
    found = []
    memberships = [line.split(":", 2) for line in read_file(str(root / "proc/self/cgroup")).decode().splitlines()]
    for mount_root, mount_point, version in _mounts(root):
        for _, controllers, group in memberships:
            if (version == 1 and "cpu" in controllers.split(",")) or (version == 2 and not controllers):
                found += _upwards(root / mount_point.lstrip("/"), _below(mount_root, group), version)
    return list({_identity(level.folder): level for level in found}.values())


def cpu_quota(root: Path = _ROOT) -> float | None:
    """The smallest CPU quota of this process's groups and their parents, in CPUs; None if there is none or it is not visible."""
    quotas = [quota for level in _levels_or_none(root) if (quota := _quota_or_none(level)) is not None]
    return min(quotas, default=None)


def effective_cpus(root: Path = _ROOT) -> float:
    """CPUs that this process may use: those of its affinity mask, limited by ``cpu_quota``."""
    allowed = float(len(os.sched_getaffinity(0)))
    quota = cpu_quota(root)
    return allowed if quota is None else min(allowed, quota)


def _mounts(root: Path) -> list[tuple[str, str, int]]:
    """(root within the hierarchy, mount point, version) of the hierarchies that can limit CPU; fields as in proc_pid_mountinfo(5)."""
    mounts = []
    for line in read_file(str(root / "proc/self/mountinfo")).decode().splitlines():
        fields, _, more = line.partition(" - ")
        kind, _, options = (more.split(" ", 2) + ["", ""])[:3]
        if kind == "cgroup2" or (kind == "cgroup" and "cpu" in options.split(",")):
            mounts.append((fields.split()[3], fields.split()[4], 2 if kind == "cgroup2" else 1))
    return mounts


def _below(mount_root: str, group: str) -> str:
    """Where the group lies below the mount point. A container may see its group's path from the host, or only ``/..`` paths."""
    if mount_root != "/":
        if group != mount_root and not group.startswith(mount_root + "/"):
            return ""
        group = group[len(mount_root) :]
    return "" if ".." in group.split("/") else group.strip("/")


def _identity(folder: Path) -> tuple[int, int]:
    stat = os.stat(folder)
    return stat.st_dev, stat.st_ino


def _upwards(mount: Path, below: str, version: int) -> list[Level]:
    folder, found = mount / below, []
    while True:
        if os.path.exists(folder / "cpu.stat"):
            found.append(Level(folder, version))
        if folder == mount:
            return found
        folder = folder.parent


def _levels_or_none(root: Path) -> list[Level]:
    try:
        return levels(root)
    except OSError:
        return []


def _quota_or_none(level: Level) -> float | None:
    try:
        return level.quota_cpus()
    except (OSError, ValueError):
        return None
