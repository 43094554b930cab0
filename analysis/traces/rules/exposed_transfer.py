"""Collectives move bytes while the device computes nothing."""

import numpy as np

from feedline.analysis.comm.operations import operation
from feedline.analysis.finding import SHARE, Evidence, Finding, Severity
from feedline.analysis.quantities import seconds, share
from feedline.analysis.traces.facts import TraceFacts
from feedline.analysis.traces.intervals import NONE, clip, joined, length, union, without

CAUSE = "exposed_communication"
SHOWN = 3  # operations in a sentence
ANY = "larger batches per rank, messages of a smaller dtype, or a faster link"
#: By the operation that takes most: sums of gradients, and FSDP's gathered parameters.
FIXES = {
    **dict.fromkeys(
        ("all_reduce", "reduce_scatter"),
        "gradients in bf16, larger batches per rank, fewer updates (no_sync), other buckets (bucket_cap_mb), or a faster link",
    ),
    "all_gather": "parameters in bf16, larger batches per rank, or a faster link",
}
MUCH_LESS = 0.5  # of the shown rank's: then waiting is most of it


def check(facts: TraceFacts) -> Finding | None:
    """Weigh the shown rank's, and name the rank that has least: what the others have more may be waiting in disguise."""
    part = facts.share("exposed_transfer")
    weight = Severity.of(part)
    if weight is Severity.INFO:
        return None
    cost_s = facts.cost_s("exposed_transfer")
    kinds = _kinds(facts)
    hidden = facts.shown.gpu.overlap_pct_of_comm
    alone = facts.between is None or not facts.between.waiting
    exposed = "exposed per step" if facts.shown.basis.steps else "exposed"
    which = "one rank's trace" if facts.between is None else "these traces"
    unsplit = f", waiting for other ranks included: {which} cannot tell the two apart" if alone else ""
    return Finding(
        CAUSE,
        weight,
        says=f"communication that no computing covers takes {share(part)} of {facts.whole}, "
        f"{seconds(cost_s)}{_told(kinds)}{unsplit}{_least(facts)}",
        evidence=[
            Evidence("exposed_transfer_share", "exposed communication", part, SHARE),
            *(
                [Evidence("hidden_transfer_share", "communication that runs beside computing", hidden / 100, SHARE)]
                if hidden is not None
                else []
            ),
            *(Evidence("exposed_s", f"{exposed}: {name}", took, "s", name) for name, took in kinds),
        ],
        fix="ingest all ranks' traces together: feedline can then separate transfer time from waiting time"
        if alone
        else FIXES.get(kinds[0][0] if kinds else "", ANY),
        disproof="a step that is as long with every rank training alone",
        cost_s=cost_s,
    )


def _kinds(facts: TraceFacts) -> list[tuple[str, float]]:
    """(operation, seconds per step) of the shown rank's exposed transfer, the most first, then all that are not told one by one. What two
    move at once is the first one's."""
    shown, window = facts.shown, facts.shown.basis
    seen, table = shown.collectives, shown.collectives.table
    names = [operation(seen.names[row["said"] if row["said"] >= 0 else row["name"]]) for row in table]
    taken = joined(seen.hidden, facts.between.waiting.get(facts.rank, NONE) if facts.between else NONE)
    found = []
    for name in sorted(set(names), key=names.index):
        mine = np.array([one == name for one in names])
        spans = without(clip(union(table["start"][mine], table["end"][mine]), window.begin, window.end), taken)
        taken = joined(taken, spans)
        found.append((name, length(spans) / 1e9 / max(window.steps, 1)))
    most = sorted((one for one in found if one[1] > 0), key=lambda one: -one[1])
    rest_s = sum(took for _, took in most[SHOWN:])
    return [*most[:SHOWN], *([("other", rest_s)] if rest_s else [])]


def _told(kinds: list[tuple[str, float]]) -> str:
    """`` (all_to_all 13.9 ms, all_reduce 746 µs)``."""
    return f" ({', '.join(f'{name} {seconds(took)}' for name, took in kinds)})" if kinds else ""


def _least(facts: TraceFacts) -> str:
    """The rank that has least of it, where that is far less: the rest of the shown rank's is then waiting that clocks could not tell."""
    least = min(facts.budgets, key=lambda rank: facts.cost_s("exposed_transfer", rank))
    least_s = facts.cost_s("exposed_transfer", least)
    if least_s > MUCH_LESS * facts.cost_s("exposed_transfer"):
        return ""
    return f"; on rank {least} it takes {seconds(least_s)}, so most of it is waiting for other ranks"
