"""Traces of other tools into a run folder: read by many processes at once, put in place in one move."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path

from feedline.analysis.ranks.many.rank_pool import RankPool, Tell, chunked, each, silent
from feedline.analysis.traces import folder
from feedline.analysis.traces.columns import Trace
from feedline.analysis.traces.kineto.limits import DEFAULT, Limits
from feedline.analysis.traces.rank import assign
from feedline.analysis.traces.reading import read_trace
from feedline.profiler import masks
from feedline.profiler.errors import ELSEWHERE, FeedlineError, OutputError, TraceDamaged
from feedline.profiler.files import own_folders, owned
from feedline.profiler.record.privacy import mask_argv
from feedline.profiler.store.layout import rank_folder
from feedline.profiler.store.manifest import Manifest


@dataclass(frozen=True)
class Ingested:
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
    limits: Limits = DEFAULT,
    command: Sequence[str] = (),
    tell: Tell = silent,
    force: bool = False,
) -> Ingested:
    """Read traces and make a run folder of them. It appears whole, at the end, or not at all.

    A file that cannot be read is named in ``problems`` and in the notes of the run; the others go on.

    Args:
        paths: of Kineto's JSON or Nsight Systems' SQLite files: local ones, or for Kineto addresses for fsspec.
        given: path, or name of the file -> rank.
        command: what the user typed, for the manifest.
        force: an older run there is removed, once the new one is whole.

    Raises:
        TraceDamaged: no file can be read. RankCollision: two claim one rank. OutputError: the run folder cannot be made.
    """
    try:
        with owned.staging(run, "run") as made, owned.staging(run, own_folders.INNER_KIND) as reading:
            staged, problems = _read_all(paths, reading, pool, limits, tell)
            if not staged:
                path, why = next(iter(problems.items()))
                raise TraceDamaged(why if len(problems) == 1 else f"none of {len(problems)} files can be read; the first: {why}")
            ranked = _ranked(staged, given or {})
            for rank, (trace, one) in ranked.items():
                place = rank_folder(made, rank)
                owned.move(one.place, made, place.name)
                left_out = [why.replace(path, os.path.basename(path)) for path, why in problems.items()] if rank == min(ranked) else []
                _manifest(trace, one.end_ns, command, left_out).write(place)
            owned.put(made, run, "run", force)
        return Ingested(run, {rank: one.path for rank, (_, one) in ranked.items()}, problems)
    except OSError as error:
        raise OutputError.unwritable(f"the run folder {run}", error, ELSEWHERE) from error


def _read_all(paths: Sequence[str], staging: Path, pool: RankPool, limits: Limits, tell: Tell) -> tuple[list[_Staged], dict[str, str]]:
    staged: list[_Staged] = []
    problems: dict[str, str] = {}
    numbered = [(path, staging / str(number)) for number, path in enumerate(dict.fromkeys(paths))]
    for found in each(pool, _read_files, chunked(numbered, 1), (limits,), "reading traces", tell):
        for one in found:
            if isinstance(one, _Staged):
                staged.append(one)
            else:
                problems[one[0]] = one[1]
    order = {path: number for number, (path, _) in enumerate(numbered)}
    return sorted(staged, key=lambda one: (order[one.path], one.place.name)), problems


def _read_files(part: Sequence[tuple[str, Path]], limits: Limits) -> "list[_Staged | tuple[str, str]]":
    """Read each file and stage its traces; a file that cannot be read gives (path, why)."""
    found: list[_Staged | tuple[str, str]] = []
    for path, place in part:
        try:
            for number, trace in enumerate(read_trace(path, limits)):
                where = place.with_name(f"{place.name}-{number:03d}")
                folder.write(trace, where)
                end = int((trace.events["start"] + trace.events["wall"]).max(initial=0))
                found.append(_Staged(path, where, replace(trace, events=trace.events[:0].copy()), end))
        except FeedlineError as error:
            found.append((path, str(error)))
        except OSError as error:
            found.append((path, f"{path} cannot be read or stored ({error.strerror or error})"))
    return found


def _ranked(staged: Sequence[_Staged], given: Mapping[str, int]) -> dict[int, tuple[Trace, _Staged]]:
    """Rank -> its trace, in order. Devices of one Nsight file that says no rank are numbered as they come.

    Raises:
        RankCollision: two claim one rank, or one of several has none.
    """
    if len(staged) > 1 and len({one.path for one in staged}) == 1 and all(one.about.rank is None for one in staged):
        note = "the file contains no ranks: its devices are numbered in order"
        return {number: (replace(one.about, rank=number, notes=[*one.about.notes, note]), one) for number, one in enumerate(staged)}
    ranked = assign([(one.path, one.about) for one in staged], given)
    return {trace.rank or 0: (trace, staged[index]) for index, trace in ranked}


def _manifest(trace: Trace, end_ns: int, command: Sequence[str], left_out: list[str]) -> Manifest:
    begin, end = trace.origin_ns, trace.origin_ns + end_ns
    return Manifest(
        command=mask_argv(list(command)),
        place={"rank": trace.rank or 0, "world_size": trace.world_size or 1},
        versions={"feedline": version("feedline"), "python": sys.version.split()[0]},
        machine={"gpus": ", ".join(sorted(set(trace.devices.values())))} if trace.devices else {},
        anchors=[{"perf_counter_ns": 0, "time_ns": begin}, {"perf_counter_ns": end - begin, "time_ns": end}],
        exit_code=0,
        ended=True,
        notes=[masks.text(note) for note in (*trace.notes, *left_out)],
    )
