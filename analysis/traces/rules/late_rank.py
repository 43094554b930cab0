"""The ranks wait for one of them."""

from feedline.analysis.finding import SHARE, Blame, Evidence, Finding, Severity
from feedline.analysis.quantities import seconds, share
from feedline.analysis.rules import late_rank as recorded
from feedline.analysis.traces.between.late import BEFORE
from feedline.analysis.traces.facts import TraceFacts, mean_step_s

FIXES = {
    **recorded.FIXES,
    "computing": recorded.FIXES["backward"],
    "launching": "look at that rank's host: busy CPUs, garbage collection, Python work that only this rank does",
    "synchronising": "look for what only that rank reads back from its device: .item(), logging, checkpoints",
}


def check(facts: TraceFacts) -> Finding | None:
    """Weigh what the others' budgets lose to waiting."""
    between = facts.between
    if between is None or not between.communication.late:
        return None
    late = between.communication.late[0]
    others = [budget for rank, budget in facts.budgets.items() if rank != late.rank]
    part = sum(one.shares.get("waiting_for_rank", 0.0) for one in others) / max(len(others), 1)
    step_s = sum(map(mean_step_s, others)) / max(len(others), 1)
    weight = Severity.of(part)
    if weight is Severity.INFO:
        return None
    doing = next(iter(between.phases.get(late.rank, {}).items()), None)
    why = _why(doing[0], doing[1] / max(late.steps, 1)) if doing else ""
    last = int((between.meetings.last == late.rank).sum())
    sure = "" if late.persistent else f" ({_sure(late.late_steps)})"
    waited = max(budget.parts["waiting_for_rank"].sum() for budget in others) / 1e9
    return Finding(
        recorded.CAUSE,
        weight,
        says=f"the other ranks wait {share(part)} of their time for rank {late.rank}{sure}: it is the last in {last} of "
        f"{len(between.meetings.last)} collectives, {seconds(late.late_s)} late{why}",
        evidence=[
            Evidence("waiting for a rank, mean of the others", part, SHARE),
            Evidence("collectives in which it was the last", last, ""),
            Evidence("longest wait of one rank, over the whole trace", float(waited), "s"),
        ],
        fix=FIXES.get(late.phase, f"look at what only rank {late.rank} does"),
        disproof=f"waiting that stays as long when rank {late.rank} runs on another machine with other data",
        cost_s=part * step_s,
        blame=Blame(late.rank, late.phase),
    )


def _why(phase: str, more_s: float) -> str:
    if phase == BEFORE:
        return f"; {seconds(more_s)} of that it was already late when its trace began"
    return f"; it takes {seconds(more_s)} longer for {phase} than the median of the others"


def _sure(steps: int) -> str:
    return "one step alone cannot tell whether it is always this one" if steps == 1 else f"it changes within {steps} steps"
