"""Process groups that the program creates: this process's rank, and the other members."""

import functools
import hashlib
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from feedline.profiler import proc, ranks
from feedline.profiler.errors import RunDamaged
from feedline.profiler.ranks import Place
from feedline.profiler.store.manifest import Manifest
from feedline.profiler.taps.patch import Patches

_LAUNCHERS = ("torchrun", "slurm", "mpi")  # which know their ranks better than a process group does, restarts among it


@dataclass(frozen=True)
class Group:
    """The default process group.

    Attributes:
        name: the same for all its ranks; later groups at the same address have it too.
    """

    name: str
    rank: int
    size: int


def attach_groups(module: Any, joins: Callable[[Group], None], joined: Callable[[], None]) -> None:
    """Call ``joins`` before and ``joined`` after this process joins the default group. Neither may raise."""

    def watched(original: Any) -> Any:
        @functools.wraps(original)
        def init_process_group(*args: Any, **kwargs: Any) -> Any:
            group = _group_of(original, args, kwargs)
            if group is not None:
                joins(group)
            result = original(*args, **kwargs)
            if group is not None:
                joined()
            return result

        return init_process_group

    Patches().enter(module.init_process_group, watched)


def _group_of(init_process_group: Any, args: Any, kwargs: Any) -> Group | None:
    """The group that a call creates; None for a single rank, or if the arguments do not say."""
    try:
        given = inspect.signature(init_process_group).bind(*args, **kwargs).arguments
        size, rank = _number(given, "world_size"), _number(given, "rank")
        if size < 2 or not 0 <= rank < size:
            return None
        store = given.get("store")
        address = given.get("init_method") or "env://"
        if store is not None:
            address = f"{getattr(store, 'host', '')}:{getattr(store, 'port', '')}:{getattr(store, 'path', '')}"
        elif address == "env://":
            address = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
        return Group(hashlib.sha256(f"{size} {address}".encode()).hexdigest()[:12], rank, size)
    except (TypeError, ValueError):
        return None


def _number(given: dict[str, Any], name: str) -> int:
    value = given.get(name, -1)
    return int(os.environ.get(name.upper(), -1)) if value is None or int(value) < 0 else int(value)


def place_of(group: Group | None) -> Place:
    """Rank and world size of this process: from its launcher, else from its group, else as a single process."""
    place = ranks.place()
    if group is None or place.launcher in _LAUNCHERS and (place.rank, place.world_size) == (group.rank, group.size):
        return place
    return Place(group.rank, group.rank, group.size, None, launcher="init_process_group")


def launch_of(place: Place, group: Group | None) -> str:
    """A name shared by the ranks of one training."""
    if place.launcher in _LAUNCHERS:
        return ranks.launch_id()
    if group is not None:
        return f"group-{group.name}"
    return f"process-{os.getpid()}-{proc.started(os.getpid())}"


def holds(run: Path, group: str) -> bool:
    """Whether a process recorded in the run folder itself belongs to this group."""
    from feedline.profiler.store.read import rank_folders

    try:
        return any(Manifest.read(folder).group == group for _, folder in rank_folders(run))
    except RunDamaged:
        return False
