"""manifest.json of one rank: who ran what, what was attached, how it ended. Rewritten whole, by an atomic rename, whenever it changes."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from feedline.profiler.errors import RunDamaged, SchemaTooNew
from feedline.profiler.files import owned
from feedline.profiler.store.layout import MANIFEST, SCHEMA_VERSION


@dataclass
class Manifest:
    """Plain data; nothing in it is secret (see record/privacy.py)."""

    schema_version: int = SCHEMA_VERSION
    launch: str = ""  #: the same for all ranks that one command started
    command: list[str] = field(default_factory=list)  #: masked argv
    place: dict[str, object] = field(default_factory=dict)  #: rank, local_rank, world_size, launcher, ...
    environment: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    machine: dict[str, object] = field(default_factory=dict)
    hooks: list[dict[str, object]] = field(default_factory=list)  #: name, attached, why
    loaders: list[dict[str, object]] = field(default_factory=list)  #: kind and settings, in the order they were first used
    training: dict[str, object] = field(default_factory=dict)  #: optimizers, schedulers, norms, samplers (taps/convergence/setup.py)
    pid: int = 0
    pid_started: int = 0  #: clock ticks since boot (/proc/PID/stat, field 22): tells a reused pid
    anchors: list[dict[str, int]] = field(default_factory=list)  #: clock.anchor() at the start and the end
    exit_code: int | None = None  #: None: still running, or killed
    ended: bool = False
    notes: list[str] = field(default_factory=list)

    def write(self, rank: Path) -> None:
        """Put the manifest into a rank's folder, which is made if it is missing.

        Raises:
            OSError: read-only or full.
        """
        owned.ensure(rank)
        owned.write(rank, MANIFEST, json.dumps(asdict(self), indent=1))

    @classmethod
    def read(cls, rank: Path) -> "Manifest":
        """Read a rank's manifest.

        Raises:
            RunDamaged: it is missing or is no JSON object.
            SchemaTooNew: a newer feedline wrote it.
        """
        path = rank / MANIFEST
        try:
            data = json.loads(path.read_text())
            version = int(data["schema_version"])
            manifest = cls(**{key: value for key, value in data.items() if key in cls.__dataclass_fields__})
            if version <= SCHEMA_VERSION:
                manifest.check()
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunDamaged(
                f"{path} cannot be read ({error}): record the run again, or remove this rank's folder to see the others"
            ) from error
        if version > SCHEMA_VERSION:
            raise SchemaTooNew(
                f"the run folder {rank.parent} was written by a newer feedline (schema {version}, this one reads up to {SCHEMA_VERSION}): "
                "pip install -U feedline"
            )
        return manifest

    def check(self) -> None:
        """See that it is what was written: somebody may have edited it.

        Raises:
            TypeError: it is not.
        """
        for name, value in asdict(Manifest(exit_code=0)).items():
            mine = getattr(self, name)
            if not isinstance(mine, type(value)) and not (name == "exit_code" and mine is None):
                raise TypeError(f"{name} is a {type(mine).__name__}")
        for rows, keys in (
            (self.hooks, {"name", "attached", "why"}),
            (self.loaders, {"kind"}),
            (self.anchors, {"perf_counter_ns", "time_ns"}),
        ):
            if not all(isinstance(row, dict) and keys <= row.keys() for row in rows):
                raise TypeError(f"one of its lists has rows without {', '.join(sorted(keys))}")

    @property
    def state(self) -> str:
        """ "finished", "live" or "cut" (its process is gone and did not say goodbye)."""
        if self.ended:
            return "finished"
        return "live" if process_started(self.pid) == self.pid_started != 0 else "cut"


def process_started(pid: int) -> int:
    """When a process started, in clock ticks since boot; 0 when there is none or it is a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            fields = stat.read().rsplit(b")", 1)[1].split()
    except OSError:
        return 0
    return 0 if fields[0] in (b"Z", b"X") else int(fields[19])
