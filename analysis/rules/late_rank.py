"""The ranks wait for one of them, or for another one in each step."""

from typing import TypedDict

from feedline.analysis.comm.model import Communication, LateRank, Prediction
from feedline.analysis.comm.question import QuestionId
from feedline.analysis.facts import Facts
from feedline.analysis.finding import SHARE, Blame, Evidence, Finding, Severity
from feedline.analysis.quantities import seconds, share

CAUSE = "late_rank"
SPREAD = "late_ranks"

#: Below it the median of few steps decides more than the ranks do.
FEWEST_STEPS = 4

FIXES = {
    "wait": "Give this rank's loader what the others have: samples of the same size, as many workers, its own CPUs and disk.",
    "copy": "Check this rank's link to its device (PCIe generation and width) and whether it copies from pinned memory.",
    "forward": "Check this rank's device (clocks, temperature, other programs) and its share of the work (longer sequences).",
    "backward": "Check this rank's device (clocks, temperature, other programs) and its share of the work (longer sequences).",
    "optimizer": "Check what only this rank does around its update: logging, checkpoints, evaluation.",
    "other": "Check what only this rank does between its steps: logging, checkpoints, evaluation. Name it with feedline.stage(...).",
}


def check(facts: Facts) -> Finding | None:
    """The rank whose lateness costs most, or all of them where it is another one in each step."""
    comm = facts.comm
    if comm is None or not comm.late or comm.late[0].late_steps < FEWEST_STEPS:
        return None
    worst = comm.late[0]
    return _one(facts, comm, worst) if worst.persistent else _changing(facts, comm)


def _one(facts: Facts, comm: Communication, late: LateRank) -> Finding | None:
    found = answer(comm, "rank_on_time", late.rank)
    cost_s = found.gain_s if found else waiting_s(facts) if late.cost_s is None else late.cost_s
    weight = Severity.of(cost_s / facts.step.mean_s)
    if weight is Severity.INFO:
        return None
    what = late.part or ("wait for data" if late.phase == "wait" else late.phase)
    what = f"time that no stage accounts for ({late.phase})" if late.phase == "other" else what
    than = "on the other rank" if len(facts.comm_parts) == 2 else "the median of the other ranks"
    why = f"; its {what} takes {seconds(late.excess_s)} longer than {than}" if late.excess_s > 0 else ""
    host = "; all ranks on its host are late, and no others" if late.whole_host else ""
    others = "the other rank waits" if len(facts.comm_parts) == 2 else f"the other {len(facts.comm_parts) - 1} ranks wait"
    return Finding(
        CAUSE,
        weight,
        says=f"rank {late.rank} is the straggler{f' (slow {late.part})' if late.part else ''}: {seconds(late.late_s)} late in "
        f"{late.steps} of {late.all_steps} steps, and {others} {seconds(late.waited_s)} in each of them{why}{host}. {innocent(facts)}",
        evidence=_evidence(facts, comm, late),
        fix=FIXES.get(late.phase, f"Check what rank {late.rank} does in {late.phase}."),
        disproof=f"Run rank {late.rank} on another machine with other data. If the others wait for it as long, this finding is wrong.",
        cost_s=cost_s,
        blame=Blame(late.rank, late.phase, late.part),
        **predicted(found),
    )


def _changing(facts: Facts, comm: Communication) -> Finding | None:
    found = answer(comm, "no_late_rank")
    cost_s = found.gain_s if found else waiting_s(facts)
    weight = Severity.of(cost_s / facts.step.mean_s)
    if weight is Severity.INFO:
        return None
    phases: dict[str, float] = {}
    for late in comm.late:
        phases[late.phase] = phases.get(late.phase, 0.0) + late.excess_s * late.steps
    phase = max(phases, key=phases.__getitem__)
    worst = comm.late[0]
    return Finding(
        SPREAD,
        weight,
        says=f"the slow rank changes from step to step: most often it is rank {worst.rank}, in {worst.steps} of the {worst.late_steps} "
        f"steps with a late rank; {'the loader' if phase == 'wait' else phase} varies most. {innocent(facts)}",
        evidence=_evidence(facts, comm, worst),
        fix="Make steps more alike: group samples of similar size, prefetch more batches (prefetch_factor), keep other programs off these "
        "CPUs.",
        disproof="Train all ranks on the same batch. If they wait for each other as long, this finding is wrong.",
        cost_s=max(cost_s, 0.0),
        blame=Blame(None, phase),
        **predicted(found),
    )


def answer(comm: Communication, asked: QuestionId, rank: int | None = None) -> Prediction | None:
    """What the replay says to a question, of this rank where it is about one; None where it refused."""
    return next((one for one in comm.what_if if one.id == asked and one.value == rank and one.step_s is not None), None)


class Interval(TypedDict, total=False):
    """Of a finding's cost."""

    cost_low_s: float
    cost_high_s: float


def predicted(found: Prediction | None) -> Interval:
    """The interval of what a cause costs: the measured step less the interval of the step without it."""
    if found is None or found.step_s is None or found.low is None or found.high is None:
        return {}
    measured = found.step_s + found.gain_s
    return {"cost_low_s": max(measured - found.high, 0.0), "cost_high_s": measured - found.low}


def _evidence(facts: Facts, comm: Communication, late: LateRank) -> list[Evidence]:
    found = [
        Evidence("late_s", f"rank {late.rank} behind the median of the others", late.late_s, "s", str(late.rank)),
        Evidence("waited_for_s", f"waiting for rank {late.rank}, mean of the others", late.waited_s, "s", str(late.rank)),
        Evidence("share_of_late_steps", f"rank {late.rank}, share of the steps with a late rank", late.steps / late.late_steps, SHARE),
        Evidence("transfer_s", f"data transfer per step, rank {waits_most(facts)}", transfer_s(facts), "s", str(waits_most(facts))),
    ]
    if comm.clock_bound_s is not None:
        found.append(Evidence("clock_bound_s", "clock error between ranks", comm.clock_bound_s, "s"))
    return found


def innocent(facts: Facts) -> str:
    """That the network is not the cause, where collectives wait more than they move."""
    wait_s, move_s = waiting_s(facts), transfer_s(facts)
    if wait_s <= move_s:
        part = share(wait_s / max(wait_s + move_s, 1e-12))
        return f"Of the {seconds(wait_s + move_s)} per step that rank {waits_most(facts)} spends in collectives, {part} is waiting"
    return (
        f"The network is not the cause: only {seconds(move_s)} of the {seconds(wait_s + move_s)} per step that rank {waits_most(facts)} "
        "spends in collectives is data transfer"
    )


def waits_most(facts: Facts) -> int:
    """The rank that waits most for others."""
    return max(facts.comm_parts, key=lambda rank: facts.comm_parts[rank].wait_s, default=0)


def waiting_s(facts: Facts) -> float:
    """Mean seconds a step that a rank waits for another, hidden or not: of the rank that waits most."""
    return facts.comm_parts[waits_most(facts)].wait_s if facts.comm_parts else 0.0


def transfer_s(facts: Facts) -> float:
    """Mean seconds a step that bytes move, of the rank that waits most."""
    return facts.comm_parts[waits_most(facts)].transfer_s if facts.comm_parts else 0.0
