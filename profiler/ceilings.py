"""Ceilings: what each part of a machine can do alone.

Probes write them as JSON, reports read them.
"""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, TypedDict

from msgspec import Meta

from feedline.profiler.errors import CeilingsDamaged, RunDamaged, SchemaTooNew
from feedline.profiler.files import output
from feedline.profiler.files.bounded import MOST_JSON, OF_RUN, OF_USER, json_of, one_line, whole
from feedline.profiler.files.checking import MOST_RANKS, checked

_CEILINGS_SCHEMA_VERSION = 1
CEILINGS_FILE = "ceilings.json"
_WorldSize = Annotated[int, Meta(ge=1, le=MOST_RANKS)]
_Positive = Annotated[float, Meta(gt=0, le=1e24)]
_NotNegative = Annotated[float, Meta(ge=0, le=1e24)]


@dataclass(frozen=True)
class Ceiling:
    """One measured ceiling.

    Attributes:
        name: ``part/how``, such as ``decode/simplejpeg``, ``read/random cold``, ``compute/model``.
        part: the stage of a step that it limits: ``read``, ``decode``, ``augment``, ``collate``,
            ``transport``, ``pin``, ``copy``, ``memory`` (copies within main memory), ``compute``,
            ``sweep``, ``all_reduce``, ``loader``.
        value: in ``unit``: the median over the rounds. None: not measured, ``why`` says why.
        low, high: its spread: the smallest and the largest round.
        unit: ``samples/s``, ``B/s`` or ``FLOP/s``.
        per: what the value belongs to: ``core`` (n cores do n times as much), ``machine`` or
            ``device``.
        cpu_s: CPU seconds of the whole process per sample (or per byte, FLOP). Holds on a busy
            machine when wall time does not.
        source: how it was measured, or where a specified figure is from.
        settings: what it depends on: size, concurrency, page cache, image size, ...
    """

    name: str
    part: str
    value: float | None
    low: float | None = None
    high: float | None = None
    unit: str = "samples/s"
    per: str = "machine"
    cpu_s: float | None = None
    source: str = ""
    settings: dict[str, object] = field(default_factory=dict)
    why: str = ""


class _Settings(TypedDict, total=False):
    """Settings of a ceiling that analysis calculates with."""

    batches: list[_NotNegative]
    samples_per_s: list[_NotNegative | None]
    low: list[_NotNegative | None]
    high: list[_NotNegative | None]
    bytes: _NotNegative | None
    batch_bytes: _NotNegative | None
    batch_size: _Positive | None
    bus_bytes_per_s: _NotNegative | None
    ranks: _WorldSize | None


class _CeilingShape(TypedDict, total=False):
    """Types of one ceiling in a file."""

    value: _NotNegative | None
    low: _NotNegative | None
    high: _NotNegative | None
    cpu_s: _NotNegative | None
    settings: _Settings


class _CeilingsShape(TypedDict, total=False):
    """Types of the rest of a file, in addition to those of ``Ceilings``."""

    schema_version: Annotated[int, Meta(ge=1)]
    ceilings: list[_CeilingShape]
    flop_per_sample: _Positive | None
    peak_flops: _Positive | None
    sample_bytes: _Positive | None
    cores: _Positive | None


@dataclass(frozen=True)
class Ceilings:
    """All ceilings of one machine and one dataset.

    Attributes:
        flop_per_sample: forward and backward, of the model that was probed
            (torch.utils.flop_counter); None: no model was given.
        peak_flops: FLOP/s of the device; its source is the ceiling of the same value in the list.
        sample_bytes: mean bytes of one file of the dataset.
        cores: that this process may use, at most the cgroup quota.
        conclusion: what they come to, as `feedline probe` prints it; empty: too little was
            measured.
    """

    ceilings: list[Ceiling]
    machine: dict[str, object] = field(default_factory=dict)
    flop_per_sample: float | None = None
    peak_flops: float | None = None
    sample_bytes: float | None = None
    cores: float | None = None
    notes: list[str] = field(default_factory=list)
    conclusion: str = ""
    schema_version: int = _CEILINGS_SCHEMA_VERSION

    def write(self, path: Path) -> None:
        """Write as JSON, by an atomic rename.

        Raises:
            OutputError: the place is read-only, full or not there.
        """
        output.save(path, self.text())

    def text(self) -> str:
        """Return them as JSON."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def joined(cls, many: "list[Ceilings]") -> "Ceilings":
        """Combine several files, such as a probe and a comparison.

        Single figures are taken from the first file that has them.

        Args:
            many: at least one.
        """

        def first(name: str) -> float | None:
            return next(
                (figure for ceilings in many if (figure := getattr(ceilings, name)) is not None),
                None,
            )

        return cls(
            [ceiling for ceilings in many for ceiling in ceilings.ceilings],
            many[0].machine,
            flop_per_sample=first("flop_per_sample"),
            peak_flops=first("peak_flops"),
            sample_bytes=first("sample_bytes"),
            cores=first("cores"),
            notes=[note for ceilings in many for note in ceilings.notes],
        )

    @classmethod
    def read(cls, path: Path, in_run: bool = False) -> "Ceilings":
        """Read a file that ``write`` wrote.

        Args:
            path: of the file.
            in_run: it lies in a run folder, and not where the user says: it may not be a link.

        Raises:
            CeilingsDamaged: it is missing or not such a file.
            SchemaTooNew: a newer feedline wrote it.
        """
        try:
            data = json_of(whole(path, MOST_JSON, OF_RUN if in_run else OF_USER))
            version = checked(data, _CeilingsShape).get("schema_version", 1)
            if version <= _CEILINGS_SCHEMA_VERSION:
                ceilings: Ceilings = checked(data, cls)
                return ceilings
        except (OSError, ValueError, RunDamaged) as error:
            raise CeilingsDamaged(
                f"{path} is not a ceilings file ({one_line(error)}): create one with `feedline "
                f"probe -o {path.name}`"
            ) from error
        raise SchemaTooNew.of(path, version, _CEILINGS_SCHEMA_VERSION)
