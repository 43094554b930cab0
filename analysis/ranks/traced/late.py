"""What late ranks were doing while the others waited for them."""

from collections.abc import Mapping

import numpy as np

from feedline.analysis.intervals import IntArray
from feedline.analysis.ranks.blame import Blame, behind
from feedline.analysis.ranks.cross_rank import CrossRank
from feedline.analysis.ranks.match import MISSING, CollectiveTable
from feedline.analysis.ranks.model import BEFORE_TRACE
from feedline.analysis.traces.budget import PARTS
from feedline.analysis.traces.summary import RankTrace

#: Part of a budget -> phase of a late rank, in the words of comm/blame.py where the meaning is the same.
_PHASES = {
    "input": "wait",
    "exposed_copy": "copy",
    "compute": "computing",
    "host_launch": "launching",
    "synchronisation": "synchronising",
    "exposed_transfer": "other communication",
    "waiting_for_rank": "other communication",
    "unexplained": "other",
}


def before(together: CrossRank, traces: Mapping[int, RankTrace], kept: Mapping[int, IntArray]) -> IntArray:
    """Where each rank's time went before each collective, since its last one had ended.

    Args:
        kept: as of Numbered.

    Returns:
        int64 [m, ranks, parts], ns; MISSING where a rank did not take part.
    """
    found = np.full((*together.matched.start.shape, len(PARTS)), MISSING)
    for column, one in enumerate(together.ranks):
        row = together.matched.rows[column]
        there = row >= 0
        found[row[there], column] = traces[one.rank].collectives.before[kept[one.rank][there]]
    return found


def excess(blamed: Blame, together: CrossRank, spent: IntArray) -> dict[str, IntArray]:
    """How much longer the late rank of each step took for each phase than the median of the others, over all collectives at which it was
    the last: what it was late with already when its trace began is BEFORE_TRACE.

    Args:
        spent: of ``before``.

    Returns:
        phase -> int64 [steps], ns.
    """
    matched, met = together.matched, together.met
    found = {phase: np.zeros(len(blamed.column), np.int64) for phase in (*dict.fromkeys(_PHASES.values()), BEFORE_TRACE)}
    step = together.ranks[0].step_at(matched.start[:, 0])
    row = np.flatnonzero(together.awaited & (step >= 0))
    row = row[met.last_column[row] == blamed.column[step[row]]]
    column = met.last_column[row]
    late = behind(met.start[row], column)
    sure = late > together.bound
    row, column, late = row[sure], column[sure], late[sure]
    left = late.copy()
    for number, part in enumerate(PARTS):
        more = behind(spent[row, :, number], column)
        np.add.at(found[_PHASES[part]], step[row], more)
        left -= more
    firsts = np.array([_first(matched, one) for one in range(len(matched.ranks))], np.int64)
    began = row == firsts[column]
    np.add.at(found[BEFORE_TRACE], step[row[began]], left[began])
    return found


def _first(matched: CollectiveTable, column: int) -> int:
    """The first collective of a rank."""
    there = np.flatnonzero(matched.start[:, column] != MISSING)
    return int(there[matched.start[there, column].argmin()]) if len(there) else -1
