"""The interfaces of stores and of their writers."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from feedline.pipelines.stores.index import Index, Place


class Store(Protocol):
    """A dataset open for reading. Can be pickled and shared by threads, and works in a forked or spawned process."""

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
    """A file to be put into a store.

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
    """Adds samples to a store. Whatever it raises, what it wrote before can be recovered."""

    max_bytes: int  #: what the format cannot hold is refused before it is added

    def recover(self, index: Index) -> int:
        """After a kill: how many of the journalled samples, from the first on, are complete. The rest is cut off."""

    def add(self, sample: Sample) -> Place:
        """Write a sample, with the next number. Raises OSError."""

    def checkpoint(self) -> None:
        """Make the samples added so far survive a kill; the journal is already on the disk."""

    def finish(self, index: Index) -> list[str]:
        """Write the files for other libraries, and flush everything to the disk; returns the names of the files."""

    def close(self) -> None:
        """Close its files; called once, after ``finish`` or an error."""


@dataclass(frozen=True)
class LeftOut:
    """A file that is not in the store."""

    path: str
    message: str


@dataclass(frozen=True)
class Progress:
    """Progress of packing or verifying.

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
    """A progress callback that does nothing."""
