"""Files of other tools into a run folder.

It finds which rank each is of, reads them by many processes at once, and moves them in one go.
"""

import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path

from feedline.analysis.ranks.many.rank_pool import RankPool, Tell, chunked, each, silent
from feedline.analysis.traces import folder
from feedline.analysis.traces.kineto.kineto_reader import read_kineto
from feedline.analysis.traces.nsight.nsight_reader import NUMBERED, read_nsight
from feedline.analysis.traces.trace_columns import DEFAULT, Trace, TraceLimits
from feedline.profiler import masks
from feedline.profiler.errors import (
    ELSEWHERE,
    FeedlineError,
    OutputError,
    RankCollision,
    TraceDamaged,
)
from feedline.profiler.files import own_folders, owned
from feedline.profiler.message import id_of
from feedline.profiler.record.privacy import mask_argv
from feedline.profiler.store.layout import rank_folder
from feedline.profiler.store.manifest import Manifest, is_live

#: The word, at most one mark, and a number that does not go on as a date or a version does. Host
#: names, process ids, steps and times have no such word before them.
_RANK_IN_NAME = re.compile(
    r"(?<![a-z])(?<!local[-_.])(?<!node[-_.])(?<!group[-_.])(?:rank|worker|trainer)[-_.=:]?(\d{1,6})(?!\d)",
    re.IGNORECASE,
)
_RANK_OF_ALL = re.compile(
    r"(?<![a-z\d.])(?:rank|worker|trainer)?(\d{1,6})_?of_?(\d{1,6})(?!\d)", re.IGNORECASE
)
_SQLITE = b"SQLite format 3\0"


def _rank_of(trace: Trace, path: str, given: int | None = None) -> tuple[int | None, str]:
    """Return the rank of a trace, and how it is known.

    "argument", "content", "file name", or "unknown" with None.

    Args:
        trace: as it was read.
        path: as the user named it: the name of the file is looked at, then that of its folder.
        given: what ``--rank FILE=N`` says of this file. It comes first, or it could not part two
            traces that claim one rank.
    """
    if given is not None:
        return given, "argument"
    if trace.rank is not None:
        return trace.rank, "content"
    for part in reversed(path.rstrip("/").split("/")[-2:]):
        named = _rank_in(part)
        if named is not None:
            return named, "file name"
    return None, "unknown"


def _rank_in(name: str) -> int | None:
    """Find the rank in a name of a file or folder.

    Such as ``rank3``, ``rank_3``, ``worker-3.1694128201557.pt.trace``, ``3of128``.
    """
    of_all = [int(rank) for rank, size in _RANK_OF_ALL.findall(name) if int(rank) < int(size)]
    numbers = set(of_all or map(int, _RANK_IN_NAME.findall(name)))
    return numbers.pop() if len(numbers) == 1 else None


def _assign(
    traces: Sequence[tuple[str, Trace]], given: Mapping[str, int] | None = None
) -> list[tuple[int, Trace]]:
    """Give every trace its rank: (its place in ``traces``, the trace), in the order of ranks.

    Args:
        traces: (path, trace) of each file.
        given: path -> rank, from ``--rank FILE=N``, of the first trace in it, which the others
            follow; the name of a file without its folders will do.

    Raises:
        RankCollision: two traces claim one rank, or one of several has none.
    """
    given = given or {}
    owners: dict[int, str] = {}
    ranked = []
    for index, ((path, trace), place) in enumerate(zip(traces, _places(traces), strict=True)):
        first = given.get(path, given.get(trace.source))
        rank, how = _rank_of(trace, path, None if first is None else first + place)
        if rank is None and len(traces) == 1:
            rank, how = 0, "alone"
        if rank is None:
            raise RankCollision(f"neither {path} nor its name contains a rank: pass --rank FILE=N")
        if rank in owners:
            named = f"{owners[rank]} and {path}"
            raise RankCollision(
                f"rank {rank} appears twice, in {named}: pass --rank FILE=N for one of them"
            )
        owners[rank] = path
        complaints = {
            "alone": ["neither the trace nor its file name contains a rank: it is shown as rank 0"],
            "file name": [f"rank {rank} is taken from the file name"],
        }
        notes = [note for note in trace.notes if how != "argument" or id_of(note) != NUMBERED]
        ranked.append((index, replace(trace, rank=rank, notes=[*notes, *complaints.get(how, [])])))
    return sorted(ranked, key=lambda pair: pair[1].rank or 0)


def _places(traces: Sequence[tuple[str, Trace]]) -> list[int]:
    """Return the place of each trace within its file, in the order of its ranks."""
    places, taken = [0] * len(traces), Counter[str]()
    for index in sorted(range(len(traces)), key=lambda index: traces[index][1].rank or 0):
        path = traces[index][0]
        places[index] = taken[path]
        taken[path] += 1
    return places


def _read_trace(path: str, limits: TraceLimits = DEFAULT) -> list[Trace]:
    """Read a file, whoever made it: it is looked into, its name does not matter.

    Raises:
        TraceDamaged: see ``read_kineto`` and ``read_nsight``.
    """
    if "://" not in path and Path(path).is_file():
        with open(path, "rb") as file:
            if file.read(len(_SQLITE)) == _SQLITE or path.endswith(
                (".sqlite", ".nsys-rep", ".qdrep")
            ):
                return read_nsight(path, limits)
    return [read_kineto(path, limits, strangers=False)]


@dataclass(frozen=True)
class _Ingested:
    """What became of the files.

    Attributes:
        run: the run folder.
        ranks: rank -> file that it is from.
        problems: file -> why it is left out.
    """

    run: Path
    ranks: dict[int, str]
    problems: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Staged:
    """A trace that was read and waits for its rank.

    Attributes:
        about: the trace without its events.
        end_ns: last end of an event, since its origin.
    """

    path: str
    place: Path
    about: Trace
    end_ns: int


def ingest(
    paths: Sequence[str],
    run: Path,
    pool: RankPool,
    given: Mapping[str, int] | None = None,
    limits: TraceLimits = DEFAULT,
    command: Sequence[str] = (),
    tell: Tell = silent,
    force: bool = False,
) -> _Ingested:
    """Read traces and make a run folder of them. It appears whole, at the end, or not at all.

    A file that cannot be read is named in ``problems`` and in the notes of the run; the others go
    on.

    Args:
        paths: of Kineto's JSON or Nsight Systems' SQLite files: local ones, or for Kineto addresses
            for fsspec.
        run: the folder to make.
        pool: where files are read.
        given: path, or name of the file -> rank.
        limits: of each file.
        command: what the user typed, for the manifest.
        tell: called with what is being done.
        force: an older run there is removed, once the new one is whole.

    Raises:
        TraceDamaged: no file can be read. RankCollision: two claim one rank. OutputError: the run
            folder cannot be made.
    """
    try:
        with (
            owned.staging(run, "run") as staging,
            owned.staging(run, own_folders.INNER_KIND) as reading,
        ):
            staged, problems = _read_all(paths, reading, pool, limits, tell)
            if not staged:
                path, why = next(iter(problems.items()))
                raise TraceDamaged(
                    why
                    if len(problems) == 1
                    else f"none of {len(problems)} files can be read; the first: {why}"
                )
            ranked = _ranked(staged, given or {})
            for rank, (trace, file) in ranked.items():
                place = rank_folder(staging, rank)
                owned.move(file.place, staging, place.name)
                left_out = (
                    [why.replace(path, masks.file_name(path)) for path, why in problems.items()]
                    if rank == min(ranked)
                    else []
                )
                _manifest(trace, file.end_ns, command, left_out).write(place)
            owned.put(staging, run, "run", force, is_live)
        return _Ingested(run, {rank: file.path for rank, (_, file) in ranked.items()}, problems)
    except OSError as error:
        raise OutputError.unwritable(f"the run folder {run}", error, ELSEWHERE) from error


def _read_all(
    paths: Sequence[str], staging: Path, pool: RankPool, limits: TraceLimits, tell: Tell
) -> tuple[list[_Staged], dict[str, str]]:
    staged: list[_Staged] = []
    problems: dict[str, str] = {}
    numbered = [(path, staging / str(number)) for number, path in enumerate(dict.fromkeys(paths))]
    for results in each(pool, _read_files, chunked(numbered, 1), (limits,), "reading traces", tell):
        for result in results:
            if isinstance(result, _Staged):
                staged.append(result)
            else:
                problems[result[0]] = result[1]
    order = {path: number for number, (path, _) in enumerate(numbered)}
    return sorted(staged, key=lambda item: (order[item.path], item.place.name)), problems


def _read_files(
    part: Sequence[tuple[str, Path]], limits: TraceLimits
) -> "list[_Staged | tuple[str, str]]":
    """Read each file and stage its traces; a file that cannot be read gives (path, why)."""
    results: list[_Staged | tuple[str, str]] = []
    for path, place in part:
        try:
            for number, trace in enumerate(_read_trace(path, limits)):
                results.append(_staged(trace, path, place.with_name(f"{place.name}-{number:03d}")))
        except FeedlineError as error:
            results.append((path, str(error)))
        except OSError as error:
            results.append((path, f"{path} cannot be read or stored ({error.strerror or error})"))
    return results


def _staged(trace: Trace, path: str, where: Path) -> _Staged:
    """Stage a trace that can be read again.

    Raises:
        TraceDamaged: nothing could read it again. OSError: the disk is full.
    """
    try:
        folder.check(trace)
    except ValueError as error:
        raise TraceDamaged(f"{path} contains impossible numbers ({error})") from error
    folder.write(trace, where)
    end = int((trace.events["start"] + trace.events["wall"]).max(initial=0))
    return _Staged(path, where, replace(trace, events=trace.events[:0].copy()), end)


def _ranked(
    staged: Sequence[_Staged], given: Mapping[str, int]
) -> dict[int, tuple[Trace, _Staged]]:
    """Return the traces by rank, in order.

    Raises:
        RankCollision: two claim one rank, or one of several has none.
    """
    ranked = _assign([(file.path, file.about) for file in staged], given)
    return {trace.rank or 0: (trace, staged[index]) for index, trace in ranked}


def _manifest(trace: Trace, end_ns: int, command: Sequence[str], left_out: list[str]) -> Manifest:
    begin, end = trace.origin_ns, trace.origin_ns + end_ns
    return Manifest(
        command=mask_argv(list(command)),
        place={"rank": trace.rank or 0, "world_size": trace.world_size or 1},
        versions={"feedline": version("feedline"), "python": sys.version.split()[0]},
        machine={"gpus": ", ".join(sorted(set(trace.devices.values())))} if trace.devices else {},
        anchors=[
            {"perf_counter_ns": 0, "time_ns": begin},
            {"perf_counter_ns": end - begin, "time_ns": end},
        ],
        exit_code=0,
        ended=True,
        notes=[masks.text(note) for note in (*trace.notes, *left_out)],
    )
