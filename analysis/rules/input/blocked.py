"""Samples are blocked, and not by storage.

They sleep, or wait for a lock, the network or another process.
"""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import (
    SHARE,
    Change,
    Evidence,
    Factor,
    Finding,
    Refused,
    Severity,
    measured,
)
from feedline.analysis.ledger.known_call import CallFound
from feedline.analysis.ledger.rule import AS_MUCH_CPU, Rule, Time
from feedline.analysis.ledger.view import cpus, loader_call, sample
from feedline.analysis.ledger.view.input_wait import maker, severity
from feedline.analysis.ledger.view.loader_call import arguments
from feedline.analysis.ledger.view.slow_code import making_line, slow_code
from feedline.analysis.ledger.view.slow_stage import at_own_locks
from feedline.analysis.ledger.view.storage import (
    ANSWERS,
    LOCK,
    MIN_BLOCKED_SHARE,
    STORAGE,
    blocked_by,
    spared_s,
    unknown_answers,
)
from feedline.analysis.ledger.view.workers_needed import advised
from feedline.analysis.measure.batch_making import DOING
from feedline.analysis.measure.stages import MAKING_STAGES
from feedline.analysis.text.sentences import NAME, PART, PERCENT, TIME, Sentence

_RULE_ID = "blocked"
_SLEEP = "sleep"
_UNKNOWN = "unknown"
_NETWORK, _PROCESS = ANSWERS

_FIX = {
    _SLEEP: [
        "Find what the dataset sleeps for (time.sleep, a rate limit, polling), and remove or cache it."
    ],
    LOCK: [
        "Hold the lock for less time, or give each worker its own file handle or connection.",
        "If the dataset has a thread of its own, let it work on several samples at once.",
    ],
    _NETWORK: [
        "Fetch the samples of a batch concurrently (threads or asyncio in __getitems__).",
        "Or keep connections open, or cache the data on a local disk.",
    ],
    _PROCESS: [
        "Have the other process deliver whole batches ahead of time, or make the samples in the "
        "workers."
    ],
    _UNKNOWN: ["Find the blocking call."],
}

_SAYS = Sentence("each sample spends {part} of its time {doing}", part=PERCENT, doing=PART)
_TIMED = Sentence(
    "each sample spends {took}, {part} of its time, {doing}", part=PERCENT, took=TIME, doing=PART
)
_SHOWS = Sentence("`py-spy dump --pid PID` on {maker} shows the line.", maker=NAME)
_WORKERS = Sentence("More workers would overlap the remaining waits: {change}", change=PART)


def _check(facts: RuleInputs) -> Finding | None:
    """Look for samples that are blocked while no file is read."""
    blocked, others = sample.blocked_share(facts), _elsewhere(facts)
    if blocked is None or not others:
        return None
    kind = max(others, key=lambda name: others[name])
    cost_s = spared_s(facts, others[kind])
    weight = severity(facts, cost_s)
    if sum(others.values()) <= MIN_BLOCKED_SHARE or weight is Severity.INFO:
        return None
    given = arguments(facts, _overlapping(facts, kind))
    known, line = _known(facts), making_line(facts)
    fix, *more = [*([f"{known.call.fix}."] if known else []), *_FIX[kind]]
    return Finding(
        _RULE_ID,
        weight,
        message=_says(facts, kind, others[kind]),
        more=[known.call.says] if known else _unknown_cause(kind),
        evidence=_evidence(facts, blocked, others),
        fix=fix,
        fix_more=[
            *more,
            *([] if line else [_SHOWS(maker=maker(facts))]),
            *_more_workers(facts, given),
        ],
        place=_place(known) or line or (loader_call.place(facts) if given else ""),
        condition=loader_call.only_if(facts, given),
        how_to_check="Replace the blocking call with a value from memory. If samples take just as "
        "long, this finding is wrong.",
        cost_s=cost_s,
        settings=given,
    )


def _known(facts: RuleInputs) -> CallFound | None:
    """Return the call that is known to be slow, where most of making a sample is spent in it."""
    slow = slow_code(facts)
    return slow.known if slow is not None else None


def _place(known: CallFound | None) -> str:
    return f"{known.file}:{known.line}" if known is not None else ""


def _unknown_cause(kind: str) -> list[str]:
    return ["the cause is unknown"] if kind == _UNKNOWN else []


def _change(facts: RuleInputs) -> Change | Refused:
    """Take away sleeping.

    How long other waits would be is unknown, also with more workers.
    """
    others = _elsewhere(facts)
    kind = max(others, key=lambda name: others[name]) if others else _UNKNOWN
    if kind == _SLEEP:
        awake = 1 - (blocked_by(facts) or {}).get(_SLEEP, 0.0)
        return Change(stages=dict.fromkeys(MAKING_STAGES, Factor(off_cpu=awake)))
    number = _overlapping(facts, kind)
    if number is not None:
        return unknown_answers(number)
    return Refused(
        "unknown_wait",
        f"How much of the time spent {DOING[kind]} would remain is unknown. Apply the fix, and "
        f"record again.",
    )


def _elsewhere(facts: RuleInputs) -> dict[str, float]:
    """Return the share of a sample's time that each wait blocks that is not for storage.

    It is empty where that is not known.
    """
    blocked, seen = sample.blocked_share(facts), blocked_by(facts)
    if blocked is None or (seen is None and _reads(facts)):
        return {}
    named = (*STORAGE, LOCK) if at_own_locks(facts) else STORAGE
    return {
        kind: part * blocked
        for kind, part in (seen or {_UNKNOWN: 1.0}).items()
        if kind not in named
    }


def _reads(facts: RuleInputs) -> bool:
    """Tell whether samples may be blocked in files: they read some, or memory maps."""
    traffic = facts.traffic
    return (
        (traffic.read_calls or 0.0) >= 1
        or (traffic.disk_bytes or 0.0) > 0
        or (traffic.major_faults or 0.0) > 0
    )


def _says(facts: RuleInputs, kind: str, part: float) -> str:
    total, doing = sample.total(facts), DOING[kind]
    if total is None:
        return _SAYS(part=part, doing=doing)
    return _TIMED(part=part, took=part * total.wall_s, doing=doing)


def _evidence(facts: RuleInputs, blocked: float, others: dict[str, float]) -> list[Evidence]:
    traffic, workers = facts.traffic, facts.workers
    shares = [
        Evidence("blocked_share", "blocked, share of a sample's time", blocked, SHARE),
        *(
            Evidence(
                "blocked_by_share", f"blocked ({kind}), share of a sample's time", part, SHARE, kind
            )
            for kind, part in others.items()
        ),
    ]
    found = [
        (
            "blocked_looks",
            "snapshots of blocked threads",
            workers.blocked_looks if workers else None,
            "snapshots",
        ),
        ("read_bytes", "bytes read per sample, without memory maps", traffic.read_chars, "B"),
        ("disk_bytes", "bytes read from disk per sample", traffic.disk_bytes, "B"),
    ]
    return [*shares, *measured(found)]


def _overlapping(facts: RuleInputs, kind: str) -> int | None:
    """Return the workers that overlap what must remain.

    None: nothing must, they do not overlap it, or they lack CPUs.
    """
    return advised(facts) if kind in ANSWERS and not cpus.saturated(facts) else None


def _more_workers(facts: RuleInputs, given: dict[str, int | bool]) -> list[str]:
    return [_WORKERS(change=loader_call.change(facts, given))] if given else []


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    claims=("sample/*/blocked",),
    by_settings=True,
    lifts=AS_MUCH_CPU,
    time=Time.IDLE,
    of_input=True,
    action="remove the wait",
)
