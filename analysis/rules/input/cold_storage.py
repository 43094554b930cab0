"""Samples wait for the disk: the files are not in the page cache."""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import (
    SHARE,
    Change,
    CostKind,
    Evidence,
    Finding,
    Refused,
    Severity,
    measured,
)
from feedline.analysis.ledger.rule import AS_MUCH_CPU, Effort, Rule, Time
from feedline.analysis.ledger.view import loader_call
from feedline.analysis.ledger.view.cpus import saturated
from feedline.analysis.ledger.view.input_wait import severity
from feedline.analysis.ledger.view.loader_call import arguments
from feedline.analysis.ledger.view.sample import MIN_DISK_BYTES, from_swap
from feedline.analysis.ledger.view.storage import (
    MIN_BLOCKED_SHARE,
    blocked_by,
    spared_s,
    storage_share,
)
from feedline.analysis.ledger.view.workers_needed import carried, gained_s
from feedline.analysis.text.sentences import PART, PERCENT, SIZE, Sentence

_RULE_ID = "cold_storage"

#: Bytes from the disk over bytes read (docs/rules/cold_storage.md). Files read through memory maps
#: have no bytes read, only page faults.
_MIN_DISK_SHARE = 0.20

_WAITS = Sentence(
    "{part} of the time per sample is spent waiting for the disk to deliver {read}",
    part=PERCENT,
    read=SIZE,
)
_BLOCKED = Sentence(
    "samples are blocked {part} of their time, and {read} of each come from the disk",
    part=PERCENT,
    read=SIZE,
)
_MAPPED = "it delivers them through page faults of memory maps"
_SET = Sentence("{change}: workers that wait for the disk need no CPU.", change=PART)
_MOVE = "Move the data to a faster or local disk, or keep it in memory."
_IF_NO_FASTER = (
    "If the disk does not deliver more bytes/s then, move the data to a faster or local disk, or "
    "keep it in memory."
)
_STORE = "Or store fewer bytes, or read large shards (tar, LMDB) in order."


def _check(facts: RuleInputs) -> Finding | None:
    """Look for samples that are blocked while bytes come from the disk."""
    blocked, traffic = storage_share(facts), facts.traffic
    if (
        blocked is None
        or blocked <= MIN_BLOCKED_SHARE
        or traffic.disk_bytes is None
        or traffic.disk_bytes < MIN_DISK_BYTES
    ):
        return None
    if traffic.disk_bytes <= _MIN_DISK_SHARE * (traffic.read_chars or 0.0) or from_swap(facts):
        return None
    cost_s = spared_s(facts, blocked)
    weight = severity(facts, cost_s)
    if weight is Severity.INFO:
        return None
    more, gain = _more_workers(facts), gained_s(facts)
    if more and gain is not None and gain.high > 0:
        cost_s = min(cost_s, gain.high)
    says = _WAITS if blocked_by(facts) is not None else _BLOCKED
    mapped = (
        traffic.read_chars is not None
        and traffic.read_chars < traffic.disk_bytes / 2
        and (traffic.major_faults or 0.0) > 0
    )
    return Finding(
        _RULE_ID,
        weight,
        message=says(part=blocked, read=traffic.disk_bytes),
        more=[_MAPPED] if mapped else [],
        evidence=_evidence(facts, blocked, traffic.disk_bytes),
        fix=_SET(change=loader_call.in_words(facts, more)) if more else _MOVE,
        fix_more=[*([_IF_NO_FASTER] if more else []), _STORE],
        place=loader_call.place(facts) if more else "",
        condition=loader_call.only_if(facts, more),
        how_to_check="Read the same samples again, from the page cache. If reading them still "
        "takes as long, this finding is wrong.",
        cost_s=cost_s,
        cost_kind=CostKind.BOUND if more else CostKind.ESTIMATED,
        settings=more,
        action=f"num_workers={more['num_workers']}" if "num_workers" in more else "",
    )


def _change(facts: RuleInputs) -> Change | Refused:
    """Use more workers, if the fix names them.

    How fast another disk or another format is, is unknown.
    """
    more = _more_workers(facts)
    if more:
        return Change(settings=more)
    return Refused(
        "unknown_storage",
        "The speed of other storage is unknown. Copy some of the files to another disk, and "
        "measure it with `feedline probe --parts read "
        "--data DIR`.",
    )


def _more_workers(facts: RuleInputs) -> dict[str, int | bool]:
    return arguments(facts, None if saturated(facts) else carried(facts))


def _evidence(facts: RuleInputs, blocked: float, disk_bytes: float) -> list[Evidence]:
    rate, traffic = facts.throughput.samples_per_s, facts.traffic
    found = [
        (
            "blocked_by_storage_share",
            "blocked by storage, share of a sample's time",
            blocked,
            SHARE,
        ),
        ("disk_bytes", "bytes read from disk per sample", disk_bytes, "B"),
        ("read_bytes", "bytes read per sample, without memory maps", traffic.read_chars, "B"),
        ("major_faults", "major page faults per sample", traffic.major_faults, "faults"),
        (
            "disk_bytes_per_s",
            "read from disk per second",
            disk_bytes * rate if rate is not None else None,
            "B/s",
        ),
    ]
    return measured(found)


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    claims=("sample/*/blocked",),
    effort=Effort.DATA,
    by_settings=True,
    lifts=AS_MUCH_CPU | {"ceiling"},
    time=Time.IDLE,
    of_input=True,
    action="read from faster storage",
)
