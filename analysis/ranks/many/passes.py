"""Where the ranks of a run are, and the two passes over them, one rank at a time."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from feedline.analysis.measure.pace import throughput_of
from feedline.analysis.measure.steps import steps_of
from feedline.analysis.ranks.many.envelope import OPERATION_KINDS, Envelope
from feedline.analysis.ranks.partition import RANK_PARTS, exchanges_gradients, partition
from feedline.analysis.traces.collectives import UNKNOWN_HOST, Collectives
from feedline.profiler.errors import FeedlineError, MissingDependency, RunDamaged, RunNotFound
from feedline.profiler.message import name_ranks
from feedline.profiler.store.layout import parse_rank_folder
from feedline.profiler.store.manifest import Manifest
from feedline.profiler.store.run_folder import Rank, rank_folders, restart_notes
from feedline.profiler.store.trainings import inner_trainings

_LEFT_OUT_STEPS = 2  # steps left out: DistributedDataParallel rebuilds its buckets, caches fill
Load = Callable[[Rank], Collectives | None]


@dataclass(frozen=True)
class RankSource:
    """One rank's folder.

    ``url`` is a path of this machine, or an address for fsspec such as ``s3://bucket/run/rank3``.
    """

    url: str
    rank: int
    restart: int

    @contextmanager
    def opened(self) -> Iterator[Rank]:
        """Open the rank, from a copy that goes away afterwards if it is somewhere else.

        Raises:
            RunDamaged, SchemaTooNew: its files cannot be read.
        """
        with tempfile.TemporaryDirectory(prefix="feedline-") as temporary:
            folder = Path(self.url)
            if "://" in self.url:
                files, path = _filesystem(self.url)
                folder = Path(temporary) / path.rstrip("/").rsplit("/", 1)[-1]
                try:
                    files.get(path, str(folder), recursive=True)
                except (OSError, ValueError) as error:
                    raise RunDamaged(f"{self.url} cannot be copied here ({error})") from error
            yield Rank(folder, self.rank, self.restart, Manifest.read(folder), [])


@dataclass(frozen=True)
class _Sources:
    """The ranks to read: those of the launch's last start."""

    found: list[RankSource]
    notes: list[str] = field(default_factory=list)


def find_sources(urls: Sequence[str]) -> _Sources:
    """Find the rank folders of a run, which may lie in several places, one per node.

    Raises:
        RunNotFound: a place has none. RunDamaged: a rank is in two places. MissingDependency:
            fsspec needs a library for this address.
    """
    everything: dict[tuple[int, int], RankSource] = {}
    for url in urls:
        there = [
            (place, folder)
            for folder in _folders(url)
            if (place := parse_rank_folder(folder.rstrip("/").rsplit("/", 1)[-1]))
        ]
        if not there:
            raise RunNotFound(f"{url} contains no rank folder: give {_instead(url)}")
        for place, folder in sorted(there):
            if place in everything:
                raise RunDamaged(
                    f"rank {place[0]} is in {everything[place].url} and in {folder}: these are "
                    f"two runs, give only one"
                )
            everything[place] = RankSource(folder, *place)
    last = max(restart for _, restart in everything)
    kept = [source for (_, restart), source in sorted(everything.items()) if restart == last]
    return _Sources(kept, restart_notes(everything, last))


def _instead(url: str) -> str:
    """Return which folder to give in the place of one without ranks."""
    inner = [] if "://" in url else inner_trainings(Path(url))
    if not inner:
        return "the folder that `feedline run` printed"
    return f"one of its trainings, such as {inner[0]}"


def _folders(url: str) -> list[str]:
    """Return what lies in a place.

    Raises:
        RunNotFound: there is no such place, or it does not answer. RunDamaged: the folder of a rank
            is a link. MissingDependency: fsspec needs a library for this address.
    """
    if "://" not in url:
        if not Path(url).is_dir():
            raise RunNotFound(
                f"there is no run folder {url}: give the folder that `feedline run` printed"
            )
        return [str(folder) for _, folder in rank_folders(Path(url))]
    files, path = _filesystem(url)
    try:
        return [
            files.unstrip_protocol(entry["name"])
            for entry in files.ls(path, detail=True)
            if entry["type"] == "directory"
        ]
    except (OSError, ValueError) as error:
        raise RunNotFound(f"{url} cannot be listed ({error})") from error


def _filesystem(url: str) -> tuple[Any, str]:
    """Return the file system that fsspec has for an address, and the path in it.

    Raises:
        MissingDependency: fsspec, or what it needs for this address, is not installed. RunNotFound:
            it knows no such address.
    """
    try:
        from fsspec.core import url_to_fs

        files, path = url_to_fs(url)
    except ImportError as error:
        raise MissingDependency(f"{url} needs a library that is not installed ({error})") from error
    except ValueError as error:
        raise RunNotFound(f"{url} is not an address that fsspec supports ({error})") from error
    return files, path


@dataclass(frozen=True)
class _RankScan:
    """What is known of a rank without the others.

    Attributes:
        stride: as of Collectives.
        until: ns, its own clock: where its last step ends.
        started_by: what all ranks have in common that one launcher started on one host; None:
            unknown.
        launch: the same for these ranks.
        exchanges: whether its steps exchange gradients with other ranks; None: unknown
            (partition.exchanges).
        samples_per_s: as a report has it; None: samples were not seen.
        left_after: as of Collectives.
    """

    rank: int
    host: str
    state: str
    world_size: int
    steps: int
    stride: int
    until: int
    clock_bound_ns: float
    started_by: tuple[str, str] | None
    launch: str
    unseen: tuple[str, ...] = ()
    exchanges: bool | None = None
    samples_per_s: float | None = None
    left_after: int | None = None


@dataclass
class Survey:
    """The first pass, over one rank or several."""

    envelope: Envelope = field(default_factory=Envelope)
    seen: dict[int, _RankScan] = field(default_factory=dict)
    unread: dict[int, str] = field(default_factory=dict)

    def merge(self, other: "Survey") -> "Survey":
        """Return both together."""
        return Survey(
            self.envelope.merge(other.envelope),
            {**self.seen, **other.seen},
            {**self.unread, **other.unread},
        )


class CollectiveLabel(NamedTuple):
    """What collectives of one kind have in common."""

    name: str
    nbytes: int
    ranks: int  # of the group


class _Moved(NamedTuple):
    """Collectives of one kind that all ranks of their group began, and whose end this rank saw."""

    times: int
    ns: int  # in which their bytes moved


@dataclass(frozen=True)
class Spent:
    """The second pass.

    Attributes:
        steps: how many count.
        step_ns: their sum.
        parts_ns: RANK_PARTS -> sum over these steps.
        blamed_ns: rank -> waiting for it.
        moved: what its collectives took.
    """

    rank: int
    steps: int
    step_ns: int
    parts_ns: dict[str, int]
    blamed_ns: dict[int, int]
    moved: dict[CollectiveLabel, _Moved] = field(default_factory=dict)


def survey_ranks(chunk: Sequence[RankSource], load: Load) -> Survey:
    """Read ranks one after the other; one that cannot be read is named."""
    return reduce(Survey.merge, (_survey(source, load) for source in chunk), Survey())


def _survey(source: RankSource, load: Load) -> Survey:
    try:
        with source.opened() as rank:
            collectives = load(rank)
            if collectives is None:
                return Survey(unread={source.rank: "it made no step and called no collective"})
            return Survey(Envelope.of(collectives), {source.rank: _seen(rank, collectives)})
    except (FeedlineError, OSError) as error:
        return Survey(unread={source.rank: str(error)})


def _seen(rank: Rank, collectives: Collectives) -> _RankScan:
    place = rank.manifest.place
    node = place.get("group_rank")
    apart = place.get("launcher") == "env" or (
        node is None and collectives.host == UNKNOWN_HOST
    )  # typed one by one, or of unknown hosts
    return _RankScan(
        rank=collectives.rank,
        host=collectives.host,
        state=rank.manifest.state,
        world_size=int(str(place.get("world_size", 1))),
        steps=len(collectives.steps),
        stride=collectives.stride,
        until=int(collectives.steps[-1, 1]) if len(collectives.steps) else 0,
        clock_bound_ns=collectives.clock.bound,
        started_by=None if apart else (collectives.host, str(node)),
        launch=rank.manifest.launch,
        unseen=tuple(collectives.unseen),
        exchanges=exchanges_gradients(collectives, rank.manifest),
        left_after=collectives.left_after,
        samples_per_s=throughput_of(rank.main, steps_of(rank.main)).samples_per_s,
    )


def _warm_up(collectives: Collectives) -> int:
    """Return the index of the first step that counts."""
    return min(_LEFT_OUT_STEPS, max(0, len(collectives.steps) - 1))


def foreign_ranks(seen: Mapping[int, _RankScan]) -> dict[int, str]:
    """Find ranks of another launch than most, and what to say of them.

    The same launcher must have started them; of two launches with as many ranks, that of the lowest
    counts.
    """
    launches: dict[tuple[str, str], dict[str, list[int]]] = {}
    for rank, of_rank in sorted(seen.items()):
        if of_rank.started_by is not None:
            launches.setdefault(of_rank.started_by, {}).setdefault(of_rank.launch, []).append(rank)
    complaints: dict[int, str] = {}
    for by_launch in launches.values():
        most = max(by_launch.values(), key=len)
        for ranks in by_launch.values():
            if ranks is not most:
                complaints |= dict.fromkeys(
                    ranks,
                    f"its folder belongs to a different launch than {name_ranks(most)} on the "
                    f"same host",
                )
    return complaints


def split_steps(
    chunk: Sequence[RankSource], everybody: Survey, load: Load, bound: float
) -> list[Spent]:
    """Split the steps that the first pass has seen, one rank after the other.

    A live run has made more since.

    Args:
        chunk: the ranks of this call.
        everybody: what the first pass found of all.
        load: reads a rank's collectives.
        bound: ns: shorter waiting counts as transfer.
    """
    spent = []
    for source in chunk:
        with source.opened() as rank:
            collectives = load(rank)
            if collectives is not None:
                steps = collectives.steps[
                    collectives.steps[:, 1] <= everybody.seen[source.rank].until
                ]
                spent.append(_spend(replace(collectives, steps=steps), everybody.envelope, bound))
    return spent


def _spend(collectives: Collectives, envelope: Envelope, bound: float) -> Spent:
    others = envelope.arrivals(collectives, bound)
    parts = partition(collectives, others)
    first = _warm_up(collectives)
    blamed = parts.blamed[first:].sum(0).tolist()
    return Spent(
        collectives.rank,
        len(collectives.steps) - first,
        int(collectives.walls[first:].sum()),
        {name: int(parts.parts[name][first:].sum()) for name in RANK_PARTS},
        {
            rank: spent for rank, spent in zip(others.ranks, blamed, strict=False) if spent
        },  # no other rank: one column of nothing
        _moved(collectives, envelope, parts.moving) if isfinite(bound) else {},
    )


def _moved(
    collectives: Collectives, envelope: Envelope, moving: npt.NDArray[np.float64]
) -> dict[CollectiveLabel, _Moved]:
    """Add up what the complete collectives took on this rank.

    Args:
        collectives: the rank's collectives.
        envelope: of all ranks.
        moving: of its partition: float64 [n], ns.
    """
    rows = envelope.rows_of(collectives)
    sizes = np.array([len(group.ranks) for group in collectives.groups] or [0])[
        collectives.table["group"]
    ]
    known = (rows["ranks"] == sizes) & (moving > 0)
    moved: dict[CollectiveLabel, _Moved] = {}
    for kind, nbytes, ranks in set(
        zip(
            rows["kind"][known].tolist(),
            rows["nbytes"][known].tolist(),
            sizes[known].tolist(),
            strict=True,
        )
    ):
        these = known & (rows["kind"] == kind) & (rows["nbytes"] == nbytes) & (sizes == ranks)
        moved[CollectiveLabel(OPERATION_KINDS[kind], nbytes, ranks)] = _Moved(
            int(these.sum()), int(moving[these].sum())
        )
    return moved
