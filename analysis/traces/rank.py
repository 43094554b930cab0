"""Which rank a trace is of: what the user says, else what the trace says itself, else what its file is called."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from feedline.analysis.traces.columns import Trace
from feedline.profiler.errors import RankCollision

#: The word, at most one mark, and a number that does not go on as a date or a version does. Host names, process ids, steps
#: and times have no such word before them.
_NAMED = re.compile(r"(?<![a-z])(?<!local[-_.])(?<!node[-_.])(?<!group[-_.])(?:rank|worker|trainer)[-_.=:]?(\d{1,6})(?!\d)", re.IGNORECASE)
_OF_ALL = re.compile(r"(?<![a-z\d.])(?:rank|worker|trainer)?(\d{1,6})_?of_?(\d{1,6})(?!\d)", re.IGNORECASE)


def rank_of(trace: Trace, path: str, given: int | None = None) -> tuple[int | None, str]:
    """The rank of a trace, and how it is known: "argument", "content", "file name", or "unknown" with None.

    Args:
        path: as the user named it: the name of the file is looked at, then that of its folder.
        given: what ``--rank FILE=N`` says of this file. It comes first, or it could not part two traces that claim one rank.
    """
    if given is not None:
        return given, "argument"
    if trace.rank is not None:
        return trace.rank, "content"
    for part in reversed(path.rstrip("/").split("/")[-2:]):
        named = rank_in(part)
        if named is not None:
            return named, "file name"
    return None, "unknown"


def rank_in(name: str) -> int | None:
    """The rank that a name of a file or folder holds: ``rank3``, ``rank_3``, ``worker-3.1694128201557.pt.trace``, ``3of128``.

    None where it holds none, or several that differ.
    """
    of_all = [int(rank) for rank, size in _OF_ALL.findall(name) if int(rank) < int(size)]
    found = set(of_all or map(int, _NAMED.findall(name)))
    return found.pop() if len(found) == 1 else None


def assign(traces: Sequence[tuple[str, Trace]], given: Mapping[str, int] | None = None) -> list[tuple[int, Trace]]:
    """Give every trace its rank: (its place in ``traces``, the trace), in the order of ranks.

    Args:
        traces: (path, trace) of each file.
        given: path -> rank, from ``--rank FILE=N``; the name of a file without its folders will do.

    Raises:
        RankCollision: two traces claim one rank, or one of several has none.
    """
    given = given or {}
    owners: dict[int, str] = {}
    ranked = []
    for index, (path, trace) in enumerate(traces):
        rank, how = rank_of(trace, path, given.get(path, given.get(trace.source)))
        if rank is None and len(traces) == 1:
            rank, how = 0, "alone"
        if rank is None:
            raise RankCollision(f"neither {path} nor its name contains a rank: pass --rank FILE=N")
        if rank in owners:
            named = f"{owners[rank]} and {path}"
            raise RankCollision(f"rank {rank} appears twice, in {named}: pass --rank FILE=N for one of them")
        owners[rank] = path
        said = {
            "alone": ["neither the trace nor its file name contains a rank: it is shown as rank 0"],
            "file name": [f"rank {rank} is taken from the file name"],
        }
        ranked.append((index, replace(trace, rank=rank, notes=[*trace.notes, *said.get(how, [])])))
    return sorted(ranked, key=lambda pair: pair[1].rank or 0)
