"""Opens a run folder, whether live, finished or killed. Never needs torch.

torchrun restarts all ranks when one fails, and not all need come back: the folders of a launch's
last start are read.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path

from feedline.profiler.errors import RunDamaged, RunNotFound
from feedline.profiler.files.bounded import refuse_link
from feedline.profiler.message import name_ranks
from feedline.profiler.store.layout import EVENTS, SEGMENTS, parse_rank_folder, segment_paths
from feedline.profiler.store.manifest import Manifest
from feedline.profiler.store.segment_reader import Process, read_segment


@dataclass(frozen=True)
class Slice:
    """The records of a rank for one training out of several (store/trainings.py).

    Attributes:
        begin, end: ns; the next training has begun, or the process ended, at the end.
        processes: as in ``Rank``.
    """

    begin: int
    end: int
    processes: list[Process]


@dataclass(frozen=True)
class PartNumber:
    """Number of this training in its run, from 1, and how many there are."""

    number: int
    of: int


@dataclass(frozen=True)
class Rank:
    """A rank of a run, or its part of one training."""

    folder: Path
    number: int
    restart: int
    manifest: Manifest
    notes: list[str]
    slice: Slice | None = None

    @cached_property
    def processes(self) -> list[Process]:
        """The main process first, then the workers by name."""
        if self.slice is not None:
            return self.slice.processes
        if os.path.lexists(self.folder / EVENTS):
            from feedline.profiler.store.compact import read_compact

            return read_compact(self.folder)
        return list(self._segments())

    def _segments(self) -> Iterator[Process]:
        refuse_link(self.folder / SEGMENTS)
        for path in segment_paths(self.folder):
            try:
                yield read_segment(path)
            except (RunDamaged, OSError) as error:
                self.notes.append(str(error))

    @property
    def main(self) -> Process:
        """The process that trains.

        Raises:
            RunDamaged: its records are missing.
        """
        for process in self.processes:
            if not process.is_worker:
                return process
        raise RunDamaged(
            f"{self.folder} contains no records of the training process: record the run again"
        )

    @property
    def span_ns(self) -> tuple[int, int]:
        """When its recording began and ended, on its own clock.

        Of a run that was killed or goes on, it is until its last record.

        Raises:
            RunDamaged: as ``main``.
        """
        anchors, records = self.manifest.anchors, self.main.records
        begin = int(anchors[0]["perf_counter_ns"]) if anchors else 0
        if self.manifest.ended and anchors:
            return begin, int(anchors[-1]["perf_counter_ns"])
        return begin, int((records["start"] + records["wall"]).max()) if len(records) else begin


class Run:
    """A run folder.

    Attributes:
        path: the folder; of one of several trainings, ``RUN/parts/2``, which need not be there.
        ranks: rank number -> Rank, those of the launch's last start.
        notes: what is wrong with other ranks' folders, and who did not come back after a restart.
        part: which of the folder's trainings this is; None: all that the folder holds.
    """

    def __init__(
        self, path: Path, ranks: dict[int, Rank], notes: list[str], part: PartNumber | None = None
    ) -> None:
        self.path = path
        self.ranks = ranks
        self.notes = notes
        self.part = part

    @property
    def folder(self) -> Path:
        """The folder with the ranks' folders."""
        return self.path if self.part is None else self.path.parent.parent

    @property
    def name(self) -> str:
        """Display name: the folder's name, and the number of the training."""
        return (
            self.folder.name
            if self.part is None
            else f"{self.folder.name} (training {self.part.number} of {self.part.of})"
        )

    def named(self, note: str) -> str:
        """Name the files of the run in a note relative to its folder.

        The folder's location may be private.
        """
        return note.replace(f"{self.folder}{os.sep}", "")

    @classmethod
    def of_folder(cls, path: Path) -> "Run":
        """Return the ranks whose folders are in this folder.

        Raises:
            RunNotFound: there are none.
            RunDamaged: no rank in it can be read.
            SchemaTooNew: a newer feedline wrote it.
        """
        if path.is_file():
            raise RunNotFound(
                f"{path} is a file: name the run folder, the one that `feedline run` printed"
            )
        if not path.is_dir():
            raise RunNotFound(
                f"there is no run folder {path}{_suggestion(path)}: create one with `feedline run "
                f"-o {path} train.py`"
            )
        folders = rank_folders(path)
        if not folders:
            raise RunNotFound(
                f"{path} is not a run folder (it contains no rank0): give the folder that "
                f"`feedline run` printed"
            )
        readable: list[Rank] = []
        damaged: list[str] = []
        for (number, restart), folder in sorted(folders):
            try:
                readable.append(Rank(folder, number, restart, Manifest.read(folder), []))
            except RunDamaged as error:  # perhaps only not there yet
                damaged.append(str(error))
        if not readable:
            raise RunDamaged(damaged[0])
        last = max(rank.restart for rank in readable)
        ranks = {rank.number: rank for rank in readable if rank.restart == last}
        return cls(path, ranks, [*damaged, *restart_notes((place for place, _ in folders), last)])


def rank_folders(path: Path) -> list[tuple[tuple[int, int], Path]]:
    """Return ((rank, restart), folder) of all ranks in a run folder.

    Raises:
        RunDamaged: the folder cannot be listed, or one of them is a link.
    """
    try:
        folders = [
            (place, folder)
            for folder in path.iterdir()
            if (place := parse_rank_folder(folder.name))
        ]
        for _, folder in folders:
            refuse_link(folder)
        return [(place, folder) for place, folder in folders if folder.is_dir()]
    except OSError as error:
        raise RunDamaged(
            f"{path} cannot be listed ({error.strerror}): you need permission to read it"
        ) from error


def restart_notes(places: Iterable[tuple[int, int]], last: int) -> list[str]:
    """Return the notes on a launch that was restarted.

    Args:
        places: (rank, restart) of every folder.
        last: the restart that is shown.
    """
    if not last:
        return []
    notes = [
        f"the launcher started the ranks again {last} time{'s' * (last > 1)}: only the last start is "
        "shown"
    ]
    places = set(places)
    gone = sorted(
        {rank for rank, _ in places} - {rank for rank, restart in places if restart == last}
    )
    return (
        [*notes, f"{name_ranks(gone)} did not come back after the last restart"] if gone else notes
    )


def _suggestion(path: Path) -> str:
    """Return a run with a name like that of one that does not exist; empty: none is near."""
    near: dict[str, Path] = {}
    for folder in (Path("runs"), path.parent):
        with suppress(OSError, RunDamaged):
            near |= {
                one.name: one for one in folder.iterdir() if one.is_dir() and rank_folders(one)
            }
    names = get_close_matches(path.name, near, 1)
    return f" (did you mean {near[names[0]]}?)" if names else ""
