"""The rank that holds the others up in the largest launch: what is lost to it is not lost to communication."""

from collections.abc import Sequence

from feedline.analysis.formatting import seconds
from feedline.analysis.ledger.finding import CostKind, Finding, Severity, interval
from feedline.analysis.ledger.late_ranks import slower
from feedline.analysis.measure.gather import RankMetrics
from feedline.analysis.predict.rank_cpu import rank_cpus
from feedline.analysis.ranks.model import Communication
from feedline.analysis.ranks.recorded import NOTHING, compared
from feedline.analysis.rules.cross_rank.late_rank import RULE_ID, answer, predicted
from feedline.analysis.scaling.efficiency import Point
from feedline.profiler.errors import FeedlineError
from feedline.profiler.store.run_folder import Run

MATTERS = 0.05  # of the step, as everywhere


def late_of(launch: Sequence[Run], point: Point) -> str:
    """A sentence on the rank that is late in most steps and costs at least 5 % of the step; empty if there is none, or if that is unknown.

    Args:
        launch: the folders of one launch.
        point: what it measured.
    """
    gathered: dict[int, RankMetrics] = {}
    for run in launch:
        for number, rank in sorted(run.ranks.items()):
            try:
                gathered[number] = RankMetrics.of(rank)
            except FeedlineError:  # the points' notes say so
                continue
    found = compared(gathered, gathered[min(gathered)], None, NOTHING, [], rank_cpus(gathered)) if gathered else None
    return sentence(found.communication, point) if found else ""


def sentence(comm: Communication, point: Point) -> str:
    """The same of ranks that were compared: with the number and the words of `feedline report`."""
    late = next((one for one in comm.late if one.persistent), None)
    if late is None or point.step_s is None:
        return ""
    told = answer(comm, "rank_on_time", late.rank)
    cost_s = told.gain_s if told else late.waited_s if late.cost_s is None else late.cost_s
    if cost_s < MATTERS * point.step_s:
        return ""
    finding = Finding(RULE_ID, Severity.of(cost_s / point.step_s), "", cost_s=cost_s, **predicted(told))
    saved = f"{seconds(cost_s)} of each {seconds(point.step_s)} step can be saved"
    return (
        f"with {point.ranks} ranks, rank {late.rank} is {seconds(late.late_s)} late in {late.steps} of {late.all_steps} steps "
        f"({slower(late)}), which is not communication: "
        + (f"the replay predicts that {saved} ({interval(finding)})" if finding.cost_kind is CostKind.PREDICTED else f"about {saved}")
    )
