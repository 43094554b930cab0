"""How much a trace may hold before reading it would take the machine down."""

from dataclasses import dataclass

_BYTES_PER_EVENT = 640  # an event with shapes, strides and concrete inputs; Kineto's files have 130 (2021) to 420 (all options on)


@dataclass(frozen=True)
class Limits:
    """What reading one trace may take. A file beyond it is refused, never read in part.

    Attributes:
        events: rows kept. Reading peaks at about 75 bytes a row, so the default is 7.5 GB, or a JSON of some 25 GB.
        inflated_bytes: of JSON, unpacked. It is held 2 MB at a time: the bound is on time, for archives that unpack without end.
        text_bytes: of names, threads, shapes and arguments that differ, which are held once each.
    """

    events: int = 100_000_000
    inflated_bytes: int = 100_000_000 * _BYTES_PER_EVENT
    text_bytes: int = 1 << 30

    @classmethod
    def of(cls, events: int) -> "Limits":
        """The limits that ``--max-events`` sets: the number of events, and the bytes of JSON that they can take."""
        return cls(events, events * _BYTES_PER_EVENT)


DEFAULT = Limits()
