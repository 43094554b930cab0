"""Ranks that others wait for, in words, and how far ranks can be compared."""

from feedline.analysis.formatting import count, seconds
from feedline.analysis.ranks.communication import (
    BEFORE_TRACE,
    Communication,
    LateRank,
    describe_late_ranks,
)


def slower(rank: LateRank) -> str:
    """Return ``its loader (decode) takes 12.7 ms longer``."""
    part = f" ({rank.part})" if rank.part else ""
    known = {
        "wait": "its loader",
        "other": "what it does outside all stages",
        BEFORE_TRACE: "what came before its trace",
    }
    what = known.get(rank.phase, f"its {rank.phase}")
    return f"{what}{part} takes {seconds(rank.excess_s)} longer"


def late(rank: LateRank) -> str:
    """Say that others wait for one rank."""
    costs = (
        ""
        if rank.cost_s is None
        else f"; without this delay, the replayed step is {seconds(max(rank.cost_s, 0.0))} shorter"
    )
    times = f"in {count(rank.steps)} of {count(rank.all_steps)} steps"
    return f"Rank {rank.rank} is {seconds(rank.late_s)} late {times}: {slower(rank)}{costs}."


def changing(comm: Communication) -> str:
    """Say that another rank is late in each step, or that too few steps tell."""
    most = max(comm.late, key=lambda late: late.steps)
    if most.steps == most.late_steps:
        steps = "one step" if most.steps == 1 else f"{most.steps} steps"
        return (
            f"Rank {most.rank} was {seconds(most.late_s)} late in {steps}: not enough to tell "
            f"whether it is always this rank."
        )
    return f"The slow rank changes: {describe_late_ranks(comm.late)}."


def clocks(how: str, bound_s: float) -> str:
    """Say how well ranks can be compared."""
    way = {
        "measured": "measured during the run",
        "collective ends": "estimated from the ends of collectives",
    }.get(how, how)
    return f"Clock error between ranks: {seconds(bound_s)} ({way})."
