"""Where the ranks of a run are: folders on this machine, or on anything that fsspec reads."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from feedline.profiler.errors import MissingDependency, RunDamaged, RunNotFound
from feedline.profiler.store.layout import parse_rank_folder
from feedline.profiler.store.manifest import Manifest
from feedline.profiler.store.run_folder import Rank, rank_folders, restart_notes


@dataclass(frozen=True)
class Source:
    """One rank's folder. ``url`` is a path of this machine, or an address for fsspec such as ``s3://bucket/run/rank3``."""

    url: str
    rank: int
    restart: int

    @contextmanager
    def opened(self) -> Iterator[Rank]:
        """The rank, from a copy that goes away afterwards if it is somewhere else.

        Raises:
            RunDamaged, SchemaTooNew: its files cannot be read.
        """
        with tempfile.TemporaryDirectory(prefix="feedline-") as temporary:
            folder = Path(self.url)
            if "://" in self.url:
                files, path = filesystem(self.url)
                folder = Path(temporary) / path.rstrip("/").rsplit("/", 1)[-1]
                try:
                    files.get(path, str(folder), recursive=True)
                except (OSError, ValueError) as error:
                    raise RunDamaged(f"{self.url} cannot be copied here ({error})") from error
            yield Rank(folder, self.rank, self.restart, Manifest.read(folder), [])


@dataclass(frozen=True)
class Sources:
    """The ranks to read: those of the launch's last start."""

    found: list[Source]
    notes: list[str] = field(default_factory=list)


def sources(urls: Sequence[str]) -> Sources:
    """Find the rank folders of a run, which may lie in several places, one per node.

    Raises:
        RunNotFound: a place has none. RunDamaged: a rank is in two places. MissingDependency: fsspec needs a library for this address.
    """
    everything: dict[tuple[int, int], Source] = {}
    for url in urls:
        there = [(place, folder) for folder in folders(url) if (place := parse_rank_folder(folder.rstrip("/").rsplit("/", 1)[-1]))]
        if not there:
            raise RunNotFound(f"{url} contains no rank folder: give the folder that `feedline run` printed")
        for place, folder in sorted(there):
            if place in everything:
                raise RunDamaged(f"rank {place[0]} is in {everything[place].url} and in {folder}: these are two runs, give only one")
            everything[place] = Source(folder, *place)
    last = max(restart for _, restart in everything)
    kept = [source for (_, restart), source in sorted(everything.items()) if restart == last]
    return Sources(kept, restart_notes(everything, last))


def folders(url: str) -> list[str]:
    """What lies in a place.

    Raises:
        RunNotFound: there is no such place, or it does not answer. RunDamaged: the folder of a rank is a link. MissingDependency: fsspec
            needs a library for this address.
    """
    if "://" not in url:
        if not Path(url).is_dir():
            raise RunNotFound(f"there is no run folder {url}: give the folder that `feedline run` printed")
        return [str(folder) for _, folder in rank_folders(Path(url))]
    files, path = filesystem(url)
    try:
        return [files.unstrip_protocol(entry["name"]) for entry in files.ls(path, detail=True) if entry["type"] == "directory"]
    except (OSError, ValueError) as error:
        raise RunNotFound(f"{url} cannot be listed ({error})") from error


def filesystem(url: str) -> tuple[Any, str]:
    """fsspec's file system of an address, and the path in it.

    Raises:
        MissingDependency: fsspec, or what it needs for this address, is not installed. RunNotFound: it knows no such address.
    """
    try:
        from fsspec.core import url_to_fs

        files, path = url_to_fs(url)
    except ImportError as error:
        raise MissingDependency(f"{url} needs a library that is not installed ({error})") from error
    except ValueError as error:
        raise RunNotFound(f"{url} is not an address that fsspec supports ({error})") from error
    return files, path
