"""The ranks wait for one of them, or for another one in each step.

Of a recorded run and of traces alike.
"""

from collections.abc import Sequence
from typing import TypedDict

from feedline.analysis.ledger.facts import RankFacts, Waiting
from feedline.analysis.ledger.finding import (
    SHARE,
    Blame,
    CostKind,
    Evidence,
    Finding,
    Refused,
    Severity,
)
from feedline.analysis.ledger.rule import Needs, Rule
from feedline.analysis.ledger.view.recorded_ranks import FEWEST_STEPS
from feedline.analysis.measure.garbage import COLLECTING
from feedline.analysis.ranks.communication import (
    BEFORE_TRACE,
    Communication,
    LateRank,
    Prediction,
    QuestionId,
    describe_late_ranks,
)
from feedline.analysis.text.formatting import counted
from feedline.analysis.text.sentences import COUNT, NAME, PART, PERCENT, TIME, Sentence
from feedline.analysis.traces.trace_steps import WHOLE_TRACE

RULE_ID = "late_rank"
_SPREAD = "late_ranks"

#: Of the time in collectives: a network that moves bytes for longer may be part of what they take.
_INNOCENT_SHARE = 0.2

_SLOWER = (
    "Look for what slows this rank: other programs, low clocks, more work such as longer sequences."
)
_FIXES = {
    "wait": "Compare this rank's loader with another one's: size of samples, disk, CPUs and workers.",
    "copy": "Check this rank's link to its device (PCIe generation and width) and whether it "
    "copies from pinned memory.",
    "forward": _SLOWER,
    "backward": _SLOWER,
    "computing": _SLOWER,
    "launching": "Check this rank's host: busy CPUs, garbage collection, Python code that only "
    "this rank runs.",
    "synchronising": "Check what only this rank reads back from its device: .item(), logging, "
    "checkpoints.",
    "optimizer": "Check what only this rank does around its update: logging, checkpoints, "
    "evaluation.",
    "other": "Check what only this rank does outside the model and the update: logging, "
    "checkpoints, evaluation.",
    COLLECTING: "Call gc.disable(), and gc.collect() every few hundred steps, on all ranks at the "
    "same step.",
    BEFORE_TRACE: "Start all ranks' traces at the same step and record more steps: what made this "
    "rank late came before its trace.",
}
_COLLECTED = ["Or call gc.freeze() after set-up: collections then skip the objects made before."]
_STAGE = "To see its time, wrap such code in `with feedline.stage('name'):`."
_ANNOTATION = "To see its time, wrap such code in `with torch.profiler.record_function('name'):`."
_CHANGING = {
    "wait": [
        "Give all ranks batches of similar size in each step.",
        "With workers, raise prefetch_factor as well.",
    ],
    COLLECTING: [_FIXES[COLLECTING], *_COLLECTED],
}
_NOW_AND_THEN = [
    "Look for what differs between the ranks in one step: lengths and shapes, logging, "
    "checkpoints, garbage collection.",
    "Give all ranks samples of similar length.",
]
_ALWAYS = 0.95  # of all steps, in which a rank is late
_MODEL = ("forward", "backward")  # what varies there is mostly the work itself
_SAYS = Sentence(
    "rank {rank} is the straggler{why}: {others} {took} for it{often}",
    rank=NAME,
    why=PART,
    others=PART,
    took=TIME,
    often=PART,
)
_MEAN = Sentence(
    "it is late in {steps} of {all}, and that wait is their mean", steps=COUNT, all=PART
)
_WHOLE_HOST = "all ranks on its host are late, and no others"
_TOO_FEW = Sentence("{steps} too few to tell whether it is always this rank", steps=PART)
_NO_STEPS = "the trace has no steps that would tell whether it is always this rank"
_CHANGES = Sentence(
    "the slowest rank changes, and the others wait up to {part} of {whole}, mostly due to {varies}",
    part=PERCENT,
    whole=PART,
    varies=PART,
)
_WAITING = Sentence(
    "of the time that rank {rank} spends in collectives, {waiting} is waiting and {moving} data "
    "transfer",
    rank=NAME,
    waiting=PERCENT,
    moving=PERCENT,
)
_INNOCENT = Sentence(
    "the network is not the cause: data transfer is only {moving} of the time that rank {rank} "
    "spends in collectives",
    moving=PERCENT,
    rank=NAME,
)
_SLOW_PART = Sentence(
    "Find why {part} is slower on this rank: larger samples, fewer CPUs, or a slower disk.",
    part=NAME,
)
#: Parts of the loader's work -> what they are for who writes a dataset.
_PARTS = {"dataset": "__getitem__"}
_NO_REPLAY = "a replay needs the gradient buckets of all ranks, which `feedline run` records"
_VARIES = {
    "wait": "the loader",
    "other": "time in no stage",
    BEFORE_TRACE: "what came before their traces",
}
_EXCEEDED = {"other": "time that belongs to no stage", BEFORE_TRACE: "lateness before the trace"}


def _check(facts: RankFacts) -> Finding | None:
    """Find the rank whose lateness costs most of those that are late again and again.

    In few steps, it is the one that was late in them.
    """
    late = _straggler(facts)
    if late is None:
        return None
    told = answer(facts.comm, "rank_on_time", late.rank)
    others = (
        "the other rank waits" if facts.ranks == 2 else f"the other {facts.ranks - 1} ranks wait"
    )
    often = ""
    if late.all_steps > 1:
        often = " each step" if late.steps >= _ALWAYS * late.all_steps else " each time"
    message = _SAYS(rank=late.rank, why=_why(late), others=others, took=late.waited_s, often=often)
    host = [_WHOLE_HOST] if late.whole_host else []
    return _finding(
        facts,
        RULE_ID,
        late.cost_s if told is None else told.gain_s,
        told,
        said=[message, *_steps(late, facts.whole), *host, *_sure(late, facts.whole)],
        fixes=[
            _fix(late),
            *_more(late.phase, facts.traced),
        ],
        how_to_check=f"One at a time: run rank {late.rank} on another machine, give it another "
        f"rank's data, remove code that only it runs. "
        "If the others wait just as long each time, this finding is wrong."
        if late.persistent
        else f"Trace more steps of all ranks. If rank {late.rank} is not late in most of them, "
        f"this finding is wrong.",
        blame=Blame(late.rank, late.phase, late.part),
        late=late,
        action=f"speed up rank {late.rank}",
    )


def _fix(late: LateRank) -> str:
    if late.phase == "wait" and late.part:
        return _SLOW_PART(part=_PARTS.get(late.part, late.part))
    return _FIXES.get(late.phase, f"Check what rank {late.rank} does in {late.phase}.")


def _more(phase: str, traced: bool) -> list[str]:
    """Return what else to do about the rank that is late in this phase."""
    if phase == COLLECTING:
        return _COLLECTED
    return [_ANNOTATION if traced else _STAGE] if phase == "other" else []


def _changing(facts: RankFacts) -> Finding | None:
    """Find ranks that are late in turns."""
    if not facts.late or facts.waiting is None or _straggler(facts) is not None:
        return None
    told = answer(facts.comm, "no_late_rank")
    phases: dict[str, float] = {}
    for late in facts.late:
        phases[late.phase] = phases.get(late.phase, 0.0) + late.excess_s * late.steps
    phase = max(phases, key=phases.__getitem__)
    varies = _VARIES.get(phase, phase)
    return _finding(
        facts,
        _SPREAD,
        None if told is None else told.gain_s,
        told,
        said=[
            _CHANGES(part=facts.waiting.share, whole=facts.whole, varies=varies),
            f"late are {describe_late_ranks(facts.late)}",
        ],
        fixes=_CHANGING.get(phase, _NOW_AND_THEN[::-1] if phase in _MODEL else _NOW_AND_THEN),
        how_to_check="Record more steps. If the same rank is late in nearly all of them, this "
        "finding is wrong.",
        blame=Blame(None, phase),
        late=max(facts.late, key=lambda late: late.steps),
    )


def _finding(
    facts: RankFacts,
    rule_id: str,
    cost_s: float | None,
    told: Prediction | None,
    said: Sequence[str],
    fixes: Sequence[str],
    how_to_check: str,
    blame: Blame,
    late: LateRank,
    action: str = "",
) -> Finding | None:
    """Return a finding with its cost.

    That is as the replay predicts it, else how long the rank that is shown waits.
    """
    waiting = facts.waiting
    assert waiting is not None  # a rank is late
    cost_s, weight = (
        (waiting.s, Severity.of(waiting.share))
        if cost_s is None
        else (cost_s, Severity.of(cost_s / waiting.step_s))
    )
    if weight is Severity.INFO:
        return None
    if late.late_steps < FEWEST_STEPS and not late.persistent:
        weight = Severity.LOW
    (message, *more), (fix, *others) = said, fixes
    return Finding(
        rule_id,
        weight,
        message=message,
        more=[*more, *waiting.more, *_innocent(waiting)],
        evidence=_evidence(facts, waiting, late),
        fix=fix,
        fix_more=others,
        how_to_check=how_to_check,
        cost_s=max(cost_s, 0.0),
        blame=blame,
        action=action,
        **predicted(told),
    )


def _change(facts: RankFacts) -> Prediction | Refused:
    """Make the late rank as fast as the median of the others."""
    late = _straggler(facts)
    return _answered(facts, "rank_on_time", late.rank if late is not None else None)


def _no_changes(facts: RankFacts) -> Prediction | Refused:
    """Make no rank later than the median."""
    return _answered(facts, "no_late_rank")


def _answered(facts: RankFacts, asked: QuestionId, rank: int | None = None) -> Prediction | Refused:
    told = answer(facts.comm, asked, rank)
    if told is not None:
        return told
    whys = [one.why for one in facts.comm.what_if if one.why] if facts.comm else []
    return Refused(
        "no_replay",
        f"How long the steps would be without the delay cannot be predicted: "
        f"{whys[0] if whys else _NO_REPLAY}.",
    )


def _straggler(facts: RankFacts) -> LateRank | None:
    """Return the first, if it is late again and again, or if the steps are too few to tell.

    None: it is neither.
    """
    late = facts.late[0] if facts.late else None
    return (
        late if late is not None and (late.persistent or late.late_steps < FEWEST_STEPS) else None
    )


def _steps(late: LateRank, whole: str) -> list[str]:
    """Say in which steps the others wait for this rank; nothing of a trace without steps."""
    if whole == WHOLE_TRACE:
        return []
    if late.all_steps == 1:
        return ["that is the only step"]
    return [_MEAN(steps=late.steps, all=counted(late.all_steps, "step"))]


def _sure(late: LateRank, whole: str) -> list[str]:
    if late.persistent:
        return []
    if whole == WHOLE_TRACE:
        return [_NO_STEPS]
    few = "one step is" if late.late_steps == 1 else f"{late.late_steps} steps are"
    return [_TOO_FEW(steps=few)]


def _why(late: LateRank) -> str:
    """Return what the rank takes longer for; the evidence says how much longer."""
    if late.excess_s <= 0:
        return ""
    if late.phase == BEFORE_TRACE:
        return " (already late when its trace began)"
    known = {
        "wait": "slow loader",
        "other": "more time that belongs to no stage",
        COLLECTING: COLLECTING,
        "launching": "slow kernel launches",
        "synchronising": "waits for its device",
        "other communication": "other collectives",
    }
    return (
        f" (slow {_PARTS.get(late.part, late.part)})"
        if late.part
        else f" ({known.get(late.phase, f'slow {late.phase}')})"
    )


def answer(
    comm: Communication | None, asked: QuestionId, rank: int | None = None
) -> Prediction | None:
    """Return the replay's prediction for a question (about this rank, if it is about one).

    None: it was refused.
    """
    what_if = comm.what_if if comm else []
    return next(
        (
            one
            for one in what_if
            if one.id == asked and one.value == rank and one.step_s is not None
        ),
        None,
    )


class _Predicted(TypedDict, total=False):
    """What a finding says of a cost that is a prediction: its 95 % interval, s."""

    cost_kind: CostKind
    cost_low_s: float
    cost_high_s: float


def predicted(found: Prediction | None) -> _Predicted:
    """Return the interval of what a cause costs.

    It is the measured step less the interval of the step without it.
    """
    if found is None or found.step_s is None or found.low is None or found.high is None:
        return {}
    measured = found.step_s + found.gain_s
    return {
        "cost_kind": CostKind.PREDICTED,
        "cost_low_s": max(measured - found.high, 0.0),
        "cost_high_s": measured - found.low,
    }


def _evidence(facts: RankFacts, waiting: Waiting, late: LateRank) -> list[Evidence]:
    found = [
        *waiting.evidence,
        Evidence(
            "late_s",
            f"rank {late.rank} behind the median of the others",
            late.late_s,
            "s",
            str(late.rank),
        ),
        Evidence(
            "waited_for_s",
            f"the others wait for rank {late.rank} in the steps in which it is late, on average",
            late.waited_s,
            "s",
            str(late.rank),
        ),
        Evidence(
            "excess_s",
            f"{late.part or _EXCEEDED.get(late.phase, late.phase)} of rank {late.rank}, beyond "
            f"the median of the others",
            late.excess_s,
            "s",
            str(late.rank),
        ),
        Evidence(
            "share_of_late_steps",
            f"of the steps with a late rank, share in which rank {late.rank} is late",
            late.steps / late.late_steps,
            SHARE,
        ),
    ]
    if waiting.parts is not None:
        transfer_s, rank = waiting.parts.transfer_s, waiting.rank
        found.append(
            Evidence(
                "transfer_s", f"data transfer per step, rank {rank}", transfer_s, "s", str(rank)
            )
        )
        if together_s := transfer_s + waiting.parts.wait_s:
            what = f"data transfer, share of the time that rank {rank} spends in collectives"
            found.append(
                Evidence("transfer_share", what, transfer_s / together_s, SHARE, str(rank))
            )
    if facts.comm is not None and facts.comm.clock_bound_s is not None:
        found.append(
            Evidence("clock_bound_s", "clock error between ranks", facts.comm.clock_bound_s, "s")
        )
    return found


def _innocent(waiting: Waiting) -> list[str]:
    """Say that the network is not the cause, where collectives wait far longer than they move.

    Else say how much of them is waiting.
    """
    parts = waiting.parts
    if parts is None:
        return []
    moving = parts.transfer_s / max(parts.wait_s + parts.transfer_s, 1e-12)
    if moving > _INNOCENT_SHARE:
        return [_WAITING(rank=waiting.rank, waiting=1 - moving, moving=moving)]
    return [_INNOCENT(moving=moving, rank=waiting.rank)]


RULE: Rule[RankFacts] = Rule(
    RULE_ID,
    _check,
    _change,
    claims=("*/comm/late", "waiting_for_rank"),
    bound="Bound by a late rank",
    lifts=frozenset({"step"}),
    needs=Needs.CLOCKS,
    action="speed up the late rank",
)
SPREAD_RULE: Rule[RankFacts] = Rule(
    _SPREAD,
    _changing,
    _no_changes,
    claims=("*/comm/late", "waiting_for_rank"),
    bound="Bound by late ranks",
    lifts=frozenset({"step"}),
    needs=Needs.CLOCKS,
    action="give ranks equal work",
)
