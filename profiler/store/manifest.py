"""manifest.json of one rank: command, hooks, and how the run ended.

Every change rewrites it with an atomic rename.
"""

import json
import math
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from feedline.profiler import proc
from feedline.profiler.errors import RunDamaged, SchemaTooNew
from feedline.profiler.files import owned
from feedline.profiler.files.bounded import MOST_JSON, json_of, one_line, whole
from feedline.profiler.store.layout import MANIFEST

PROGRAM = "its program"  # what ended a worker that was not needed any more
OVERRIDES_HOOK = "DataLoader arguments"  # what acts for ``--set``
_SCHEMA_VERSION = 1
_UNSTORED = {"silent_s", "read_ns"}
# of a process on another machine, which cannot be asked for: while it records, its file of gauges is
# touched every _TOUCH_NS (samplers/gauge_file.py), and the last report waits 20 s for it
_SILENT_S = 15.0


@dataclass
class Manifest:
    """Plain data without secrets (see record/privacy.py)."""

    schema_version: int = _SCHEMA_VERSION
    launch: str = ""  #: the same for all ranks that one command started
    # : of the process group that the process joined by itself, without a launcher: the same for all
    # its ranks
    group: str = ""
    command: list[str] = field(default_factory=list)  #: masked argv
    # rank, local_rank, world_size, launcher, ...
    place: dict[str, object] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    machine: dict[str, object] = field(default_factory=dict)
    # name, attached, why, reason (an identifier: message.py)
    hooks: list[dict[str, object]] = field(default_factory=list)
    # kind and settings, in the order they were first used
    loaders: list[dict[str, object]] = field(default_factory=list)
    # optimizers, schedulers, ... (taps/convergence/training_setup.py)
    training: dict[str, object] = field(default_factory=dict)
    pid: int = 0
    pid_started: int = 0  #: clock ticks since boot (/proc/PID/stat, field 22): tells a reused pid
    home: str = ""  #: where that pid is one: proc.home()
    # pid and pid_started of the process that started it
    parent: list[int] = field(default_factory=list)
    # clock.anchor() at the start and the end
    anchors: list[dict[str, int]] = field(default_factory=list)
    exit_code: int | None = None  #: None: still running, or killed
    ended: bool = False
    # : what ended it if it did not exit: the type of an exception, the name of a signal, or PROGRAM
    ended_by: str = ""
    # line of the program that raised the exception or was interrupted, as in "train.py:31"
    ended_at: str = ""
    # : of a worker that a SIGKILL ended: its pid, and what came to the kernel's counts meanwhile
    # (samplers/cgroup.py, MemoryEvents)
    killed: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    #: seconds since a file of the rank was written, when this was read elsewhere; it is not stored
    silent_s: float = field(default=math.inf, init=False, compare=False)
    #: when this was read, ns since 1970, before any record was; it is not stored
    read_ns: int = field(default=0, init=False, compare=False)

    def write(self, rank: Path) -> None:
        """Write the manifest into a rank's folder, which is created if needed.

        Raises:
            OSError: read-only or full.
        """
        owned.ensure(rank)
        stored = {name: value for name, value in asdict(self).items() if name not in _UNSTORED}
        owned.write(rank, MANIFEST, json.dumps(stored, indent=1))

    @classmethod
    def read(cls, rank: Path) -> "Manifest":
        """Read a rank's manifest.

        Raises:
            RunDamaged: it is missing, or was changed or damaged; the text names the member.
            SchemaTooNew: a newer feedline wrote it.
        """
        from feedline.profiler.files.checking import checked
        from feedline.profiler.store.shapes import ManifestShape, VersionShape

        path = rank / MANIFEST
        try:
            data = json_of(whole(path, MOST_JSON))
            version = checked(data, VersionShape)["schema_version"]
            if version <= _SCHEMA_VERSION:
                checked(data, ManifestShape)
                known = {member.name for member in fields(cls) if member.init}
                manifest = cls(**{key: value for key, value in data.items() if key in known})
                if not manifest.ended:
                    manifest.silent_s = _silent_s(rank)
                manifest.read_ns = time.time_ns()
                return manifest
        except (OSError, ValueError) as error:
            raise RunDamaged(
                f"{path} cannot be read ({one_line(error)}): record the run again, or remove this "
                f"rank's folder to see the others"
            ) from error
        raise SchemaTooNew.of(f"the run folder {rank.parent}", version, _SCHEMA_VERSION)

    @property
    def state(self) -> str:
        """State of the run: "finished", "live", "ended" or "cut".

        "ended": by the program itself. "cut": its process was killed or crashed.
        """
        if self.ended:
            return "finished"
        here = self.home in ("", proc.home())
        running = proc.started(self.pid) == self.pid_started != 0
        if running if here else self.silent_s < _SILENT_S:
            return "live"
        return "ended" if self.ended_by == PROGRAM else "cut"


def is_live(rank: Path) -> bool:
    """Return whether a process records into a folder; False where no manifest tells of one."""
    try:
        return Manifest.read(rank).state == "live"
    except SchemaTooNew:
        return True  # of a newer feedline, which may record into it
    except RunDamaged:
        return False


def _silent_s(rank: Path) -> float:
    """Return how long ago a file of a rank was written, s; inf: nothing tells."""
    written = 0.0
    with suppress(OSError):
        written = max(file.stat().st_mtime for file in rank.iterdir())
    return time.time() - written if written else math.inf
