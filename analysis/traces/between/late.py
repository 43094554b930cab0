"""What late ranks were doing while the others waited for them."""

from collections.abc import Mapping, Sequence

import numpy as np

from feedline.analysis.comm.blame import Blame
from feedline.analysis.comm.collectives import Collectives
from feedline.analysis.comm.match import MISSING, Matched
from feedline.analysis.comm.partition import Meetings
from feedline.analysis.finding import BEFORE_TRACE
from feedline.analysis.timeline import IntArray
from feedline.analysis.traces.budget import PARTS
from feedline.analysis.traces.summary import RankTrace

#: Part of a budget -> phase of a late rank, in the words of comm/blame.py where the meaning is the same.
PHASES = {
    "input": "wait",
    "exposed_copy": "copy",
    "compute": "computing",
    "host_launch": "launching",
    "synchronisation": "synchronising",
    "exposed_transfer": "other communication",
    "waiting_for_rank": "other communication",
    "unexplained": "other",
}
#: As sentences name it.
WORDS = {BEFORE_TRACE: "what came before its trace"}


def before(ranks: Sequence[Collectives], traces: Mapping[int, RankTrace], kept: Mapping[int, IntArray], matched: Matched) -> IntArray:
    """Where each rank's time went before each collective, since its last one had ended.

    Returns:
        int64 [m, ranks, parts], ns; MISSING where a rank did not take part.
    """
    found = np.full((*matched.start.shape, len(PARTS)), MISSING)
    for column, one in enumerate(ranks):
        row = matched.rows[column]
        there = row >= 0
        found[row[there], column] = traces[one.rank].collectives.before[kept[one.rank][there]]
    return found


def excess(blamed: Blame, matched: Matched, met: Meetings, spent: IntArray, first: Collectives, bound: float) -> dict[str, IntArray]:
    """How much longer the late rank of each step took for each phase than the median of the others, over all collectives at which it was
    the last: what it was late with already when its trace began is BEFORE_TRACE.

    Args:
        spent: of ``before``.
        first: the first rank, whose steps are meant.

    Returns:
        phase -> int64 [steps], ns.
    """
    found = {phase: np.zeros(len(blamed.column), np.int64) for phase in (*dict.fromkeys(PHASES.values()), BEFORE_TRACE)}
    step = first.step_at(matched.start[:, 0])
    row = np.flatnonzero(matched.whole & matched.together & (step >= 0))
    row = row[met.last_column[row] == blamed.column[step[row]]]
    column = met.last_column[row]
    late = behind(met.start[row], column)
    row, column, late = row[late > bound], column[late > bound], late[late > bound]
    left = late.copy()
    for number, part in enumerate(PARTS):
        more = behind(spent[row, :, number], column)
        np.add.at(found[PHASES[part]], step[row], more)
        left -= more
    firsts = np.array([_first(matched, one) for one in range(len(matched.ranks))], np.int64)
    began = row == firsts[column]
    np.add.at(found[BEFORE_TRACE], step[row[began]], left[began])
    return found


def behind(values: IntArray, column: IntArray) -> IntArray:
    """How much more one column has than the median of the others, per row: of two in the middle the lower one, so that whole ns stay whole.

    Args:
        values: int64 [n, ranks], MISSING where there is none.
        column: int64 [n].
    """
    at = np.arange(len(values))
    others = values.copy()
    others[at, column] = MISSING
    ordered = np.sort(others, 1)  # MISSING is the smallest number
    absent = (others == MISSING).sum(1)
    middle = ordered[at, np.minimum(absent + (values.shape[1] - absent - 1) // 2, values.shape[1] - 1)]
    return np.asarray(np.where(middle == MISSING, 0, values[at, column] - middle), np.int64)


def _first(matched: Matched, column: int) -> int:
    """The first collective of a rank."""
    there = np.flatnonzero(matched.start[:, column] != MISSING)
    return int(there[matched.start[there, column].argmin()]) if len(there) else -1
