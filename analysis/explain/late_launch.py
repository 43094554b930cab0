"""Which rank of a launch is late, in one sentence."""

from collections.abc import Sequence

from feedline.analysis.ledger.finding import CostKind, Finding, Severity, interval
from feedline.analysis.measure.rank_metrics import RankMetrics
from feedline.analysis.predict.main_process import rank_cpus
from feedline.analysis.ranks.communication import Communication, describe_delay
from feedline.analysis.ranks.comparison import NO_HINTS, compare_recorded
from feedline.analysis.rules.cross_rank.late_rank import RULE_ID, answer, predicted
from feedline.analysis.text.formatting import seconds
from feedline.profiler.errors import FeedlineError
from feedline.profiler.store.run_folder import Run

_MATTERS = 0.05  # of the step, as everywhere


def late_of(launch: Sequence[Run], ranks: int, step_s: float | None) -> str:
    """Say which rank is late in most steps and costs at least 5 % of the step.

    Empty if there is none, or if that is unknown.

    Args:
        launch: the folders of one launch.
        ranks: how many it had.
        step_s: seconds of its mean step; None: unknown.
    """
    gathered: dict[int, RankMetrics] = {}
    for run in launch:
        for number, rank in sorted(run.ranks.items()):
            try:
                gathered[number] = RankMetrics.of(rank)
            except FeedlineError:  # the notes of `feedline scale` say so
                continue
    comparison = (
        compare_recorded(gathered, gathered[min(gathered)], None, NO_HINTS, [], rank_cpus(gathered))
        if gathered
        else None
    )
    return _sentence(comparison.communication, ranks, step_s) if comparison else ""


def _sentence(comm: Communication, ranks: int, step_s: float | None) -> str:
    """Say which rank is late, with the number and the words of `feedline report`."""
    late = next((late for late in comm.late if late.persistent), None)
    if late is None or step_s is None:
        return ""
    prediction = answer(comm, "rank_on_time", late.rank)
    cost_s = (
        prediction.gain_s if prediction else late.waited_s if late.cost_s is None else late.cost_s
    )
    if cost_s < _MATTERS * step_s:
        return ""
    finding = Finding(
        RULE_ID, Severity.of(cost_s / step_s), "", cost_s=cost_s, **predicted(prediction)
    )
    saved = f"{seconds(cost_s)} of each {seconds(step_s)} step can be saved"
    return (
        f"with {ranks} ranks, rank {late.rank} is {seconds(late.late_s)} late in "
        f"{late.steps} of {late.all_steps} steps "
        f"({describe_delay(late)}), which is not communication: "
        + (
            f"the replay predicts that {saved} ({interval(finding)})"
            if finding.cost_kind is CostKind.PREDICTED
            else f"about {saved}"
        )
    )
