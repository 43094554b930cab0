"""Samples are blocked, and not by storage: they sleep, or wait for a lock, the network or another process."""

from feedline.analysis.facts import Facts
from feedline.analysis.finding import SHARE, Evidence, Finding, Severity, measured
from feedline.analysis.quantities import seconds, share
from feedline.analysis.rules import cpus, slow_for_its_bytes
from feedline.analysis.rules.handover import arguments, as_code
from feedline.analysis.rules.held import severity
from feedline.analysis.rules.storage import MIN_BLOCKED_SHARE, STORAGE, blocked_by, spared_s
from feedline.analysis.rules.too_few_workers import advised

CAUSE = "blocked"
SLEEP, LOCK, NETWORK, PROCESS, UNKNOWN = "sleep", "lock", "network", "another process", "unknown"

#: What a sample does meanwhile, in a sentence that goes on with the share of its time.
DOES = {
    SLEEP: "sleep",
    LOCK: "wait for a lock or for another thread",
    NETWORK: "wait for the network",
    PROCESS: "wait for another process",
    UNKNOWN: "are blocked",
}
FIX = {
    SLEEP: "remove the sleep from the data set (time.sleep, a rate limit, a loop that polls)",
    LOCK: "give each worker its own file handle, connection or client and hold locks for less time (workers queue for a shared one); "
    "let a thread of the data set's own work on several samples at once",
    NETWORK: "fetch the samples of a batch at once (threads or asyncio in __getitems__), keep connections open, or cache on a local disk",
    PROCESS: "let the other process deliver whole batches ahead of time, or make the samples in the workers",
    UNKNOWN: "find the call with `py-spy dump --pid PID` of a worker",
}
#: What goes on side by side in more workers.
OVERLAPS = (SLEEP, NETWORK, PROCESS)


def check(facts: Facts) -> Finding | None:
    """Look for samples that are blocked while no file is read."""
    blocked, seen = cpus.blocked_share(facts), blocked_by(facts)
    if blocked is None or (seen is None and _reads(facts)):
        return None
    named = (*STORAGE, LOCK) if slow_for_its_bytes.at_helpers(facts) else STORAGE
    others = {kind: part * blocked for kind, part in (seen or {UNKNOWN: 1.0}).items() if kind not in named}
    elsewhere = sum(others.values())
    cost_s = spared_s(facts, elsewhere)
    weight = severity(facts, cost_s)
    if elsewhere <= MIN_BLOCKED_SHARE or weight is Severity.INFO:
        return None
    kind = max(others, key=lambda name: others[name])
    return Finding(
        CAUSE,
        weight,
        says=_says(facts, kind, others[kind]),
        evidence=_evidence(facts, blocked, others),
        fix=_fix(facts, kind),
        disproof="samples take just as long when the blocking call is replaced by a value from memory",
        cost_s=cost_s,
        settings=arguments(facts, _overlapping(facts, kind)),
    )


def _reads(facts: Facts) -> bool:
    """Whether samples may be blocked in files: they read some, or memory maps."""
    traffic = facts.traffic
    return (traffic.read_calls or 0.0) >= 1 or (traffic.disk_bytes or 0.0) > 0 or (traffic.major_faults or 0.0) > 0


def _says(facts: Facts, kind: str, part: float) -> str:
    total = cpus.total(facts)
    of = f", {seconds(part * total.wall_s)} of {seconds(total.wall_s)} each" if total else ""
    if kind == UNKNOWN:
        return f"samples are blocked {share(part)} of their time{of}, but not by storage; by what is unknown"
    return f"samples {DOES[kind]} {share(part)} of their time{of}"


def _evidence(facts: Facts, blocked: float, others: dict[str, float]) -> list[Evidence]:
    traffic, workers = facts.traffic, facts.workers
    shares = [
        Evidence("blocked_share", "blocked share of a sample's time", blocked, SHARE),
        *(Evidence("blocked_by_share", f"of a sample's time: {kind}", part, SHARE, kind) for kind, part in others.items()),
    ]
    found = [
        ("blocked_looks", "looks at blocked threads", workers.blocked_looks if workers else None, "looks"),
        ("read_bytes", "bytes read per sample", traffic.read_chars, "B"),
        ("disk_bytes", "bytes from the disk per sample", traffic.disk_bytes, "B"),
    ]
    return [*shares, *measured(found)]


def _overlapping(facts: Facts, kind: str) -> int | None:
    """Workers that overlap what must remain; None where they do not, or lack CPUs."""
    return advised(facts) if kind in OVERLAPS and not cpus.saturated(facts) else None


def _fix(facts: Facts, kind: str) -> str:
    number = _overlapping(facts, kind)
    more = f"; workers overlap what must remain: set {as_code(arguments(facts, number))}" if number is not None else ""
    where = "" if kind == UNKNOWN else "; `py-spy dump --pid PID` of a worker shows the line"
    return FIX[kind] + where + more
