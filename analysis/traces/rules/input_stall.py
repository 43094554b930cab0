"""The device is idle because the main thread waits for its loader."""

from feedline.analysis.finding import SHARE, Evidence, Finding, Severity
from feedline.analysis.quantities import number, share
from feedline.analysis.traces.facts import TraceFacts

CAUSE = "input_stall"


def check(facts: TraceFacts) -> Finding | None:
    """Weigh the time in which the main thread was in the loader and no work ran on the device."""
    found = facts.shown.input
    if found.stall_ns is None or not found.window_ns:
        return None
    part = found.stall_ns / found.window_ns
    weight = Severity.of(part)
    if weight is Severity.INFO:
        return None
    ceiling = found.speedup_ceiling
    most = f"; with batches always ready, the same work would be at most {number(ceiling)} times as fast" if ceiling else ""
    idle = found.idle_explained_pct or 0.0
    return Finding(
        CAUSE,
        weight,
        says=f"the device is idle {share(part)} of the time because the main thread waits for its loader{most}",
        evidence=[
            Evidence("input stall", part, SHARE),
            Evidence("share of all idle time of the device", idle / 100, SHARE),
            Evidence("batches waited for", found.calls, ""),
            Evidence("wait per batch", (found.loader_ns or 0) / 1e9 / max(found.calls, 1), "s"),
        ],
        fix="record the training with `feedline run`: it shows what the loader's workers do in that time, and why",
        disproof="a training that is no faster on batches that are in memory already",
        cost_s=part * facts.step_s,
    )
