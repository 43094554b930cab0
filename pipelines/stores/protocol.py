"""What every store and every writer of one promises."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from feedline.pipelines.stores.index import Index, Place


class Store(Protocol):
    """A data set open for reading. Pickles, is shared by threads, and works in a forked or spawned process."""

    path: Path
    classes: list[str]  #: a label is a place in it

    def __len__(self) -> int: ...

    def __getitem__(self, number: int) -> tuple[bytes, int]:
        """The bytes of the original file, and its label. Raises IndexError."""

    def name(self, number: int) -> str:
        """The original file's path, relative to the folder that was packed."""

    def close(self) -> None:
        """Close its files; reading opens them again."""


@dataclass(frozen=True)
class Sample:
    """One file on its way into a store.

    Attributes:
        number: its place in the store.
        ending: by its content: ``jpg``, ``png``, ...
    """

    number: int
    value: bytes
    label: int
    path: str
    ending: str


class Writer(Protocol):
    """Adds samples to a store that is being packed. Whatever it raises, what it wrote before can be recovered."""

    max_bytes: int  #: what the format cannot hold is refused before it is added

    def recover(self, index: Index) -> int:
        """After a kill: how many of the journalled samples, counted from the first, are whole. What is beyond is cut off."""

    def add(self, sample: Sample) -> Place:
        """Write one; the next one has the next number. Raises OSError."""

    def checkpoint(self) -> None:
        """Make what was added outlive a kill; the journal is on disk already."""

    def finish(self, index: Index) -> list[str]:
        """Write what other libraries read beside the data, and flush all to disk; returns the names of its files."""

    def close(self) -> None:
        """Close its files; called once, after ``finish`` or whatever went wrong."""


@dataclass(frozen=True)
class LeftOut:
    """A file that is not in the store."""

    path: str
    says: str


@dataclass(frozen=True)
class Progress:
    """How far packing or verifying is.

    Attributes:
        doing: ``checking`` (what an earlier, killed pack left), ``packing`` or ``verifying``.
        done, total: files.
        bytes: of the files done.
    """

    doing: str
    done: int
    total: int
    bytes: int


Report = Callable[[Progress], None]


def no_report(progress: Progress) -> None:
    """For whom progress does not matter."""
