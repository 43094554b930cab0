"""The rank that holds the others up in the largest launch: what is lost to it is not lost to communication."""

from collections.abc import Sequence

from feedline.analysis.comm.model import LateRank
from feedline.analysis.comm.summary import compare
from feedline.analysis.quantities import seconds
from feedline.analysis.scaling.basis import MOST, collectives
from feedline.analysis.scaling.efficiency import Point
from feedline.profiler.store.read import Run

MATTERS = 0.05  # of the step, as everywhere
STAGES = {"wait": "its loader", "other": "what no stage accounts for"}


def late_of(launch: Sequence[Run], point: Point) -> str:
    """A sentence on the rank that is late again and again and costs more than 5 % of the step; empty: none is, or it cannot be told.

    Args:
        launch: of up to MOST ranks; of more, `feedline ranks` tells.
        point: what it measured.
    """
    ranks = [rank for run in launch for rank in run.ranks.values()]
    if len(ranks) > MOST or point.step_s is None:
        return ""
    found = compare([one for rank in ranks if (one := collectives(rank)) is not None])
    late = next((one for one in found.communication.late if one.persistent), None) if found else None
    if late is None or _cost_s(late) < MATTERS * point.step_s:
        return ""
    what = STAGES.get(late.phase, late.phase)
    return (
        f"with {point.ranks} ranks, rank {late.rank} is {seconds(late.late_s)} late in {late.steps} of {late.all_steps} steps "
        f"({what} takes {seconds(late.excess_s)} longer there): up to {seconds(_cost_s(late))} of each {seconds(point.step_s)} step is "
        "waiting for it, not communication"
    )


def _cost_s(late: LateRank) -> float:
    return late.waited_s if late.cost_s is None else late.cost_s
