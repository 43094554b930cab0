"""The ranks wait for one of them. What that costs is told of the rank that is shown, or of the next one if it is the late one itself."""

from feedline.analysis.finding import SHARE, Blame, Evidence, Finding, Severity
from feedline.analysis.quantities import seconds, share
from feedline.analysis.rules import late_rank as recorded
from feedline.analysis.traces.between.late import BEFORE
from feedline.analysis.traces.facts import TraceFacts

FIXES = {
    **recorded.FIXES,
    "computing": recorded.FIXES["backward"],
    "launching": "look at that rank's host: busy CPUs, garbage collection, Python work that only this rank does",
    "synchronising": "look for what only that rank reads back from its device: .item(), logging, checkpoints",
}


def check(facts: TraceFacts) -> Finding | None:
    """Weigh what the budget of a rank that waits loses to it."""
    between = facts.between
    if between is None or not between.communication.late:
        return None
    late = between.communication.late[0]
    others = [rank for rank in facts.budgets if rank != late.rank]
    waiter = min(others)
    part = facts.share("waiting_for_rank", waiter)
    weight = Severity.of(part)
    if weight is Severity.INFO:
        return None
    doing = next(iter(between.phases.get(late.rank, {}).items()), None)
    why = _why(doing[0], doing[1] / max(late.steps, 1)) if doing else ""
    last = int((between.last == late.rank).sum())
    sure = "" if late.persistent else f" ({_sure(late.late_steps)})"
    most = max(others, key=lambda rank: facts.share("waiting_for_rank", rank))
    return Finding(
        recorded.CAUSE,
        weight,
        says=f"rank {waiter} waits {share(part)} of {facts.whole} for other ranks, above all for rank {late.rank}{sure}, which is the last "
        f"in {last} of {len(between.last)} collectives, {seconds(late.late_s)} late{why}",
        evidence=[
            Evidence("waiting_for_rank_share", f"rank {waiter} waits for other ranks", part, SHARE, str(waiter)),
            Evidence("last_in", "collectives in which the late rank was the last", last, ""),
            Evidence("longest_wait_share", f"the longest wait, of rank {most}", facts.share("waiting_for_rank", most), SHARE, str(most)),
        ],
        fix=FIXES.get(late.phase, f"look at what only rank {late.rank} does"),
        disproof=f"waiting that stays as long when rank {late.rank} runs on another machine with other data",
        cost_s=facts.cost_s("waiting_for_rank", waiter),
        blame=Blame(late.rank, late.phase),
    )


def _why(phase: str, more_s: float) -> str:
    if phase == BEFORE:
        return f"; {seconds(more_s)} of that it was already late when its trace began"
    return f"; it takes {seconds(more_s)} longer for {phase} than the median of the others"


def _sure(steps: int) -> str:
    return "one step alone cannot tell whether it is always this one" if steps == 1 else f"it changes within {steps} steps"
