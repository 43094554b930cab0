"""The training stands still because the main thread waits for its loader."""

from feedline.analysis.finding import SHARE, Evidence, Finding, Severity
from feedline.analysis.quantities import number, share
from feedline.analysis.traces.facts import TraceFacts

CAUSE = "input_stall"


def check(facts: TraceFacts) -> Finding | None:
    """Weigh the time in which the main thread was in the loader and neither a device nor, without one, an operator worked."""
    found = facts.shown.input
    part = facts.share("input")
    weight = Severity.of(part)
    if found.loader_ns is None or weight is Severity.INFO:
        return None
    who = "the training stands still" if found.stall_ns is None else "the device is idle"
    idle = found.idle_explained_pct
    return Finding(
        CAUSE,
        weight,
        says=f"{who} {share(part)} of {facts.whole} because the main thread waits for its loader"
        f"; with batches always ready, the same work would be at most {number(1 / (1 - part))} times as fast",
        evidence=[
            Evidence("input_share", "input stall", part, SHARE),
            *([Evidence("share_of_idle", "share of all idle time of the device", idle / 100, SHARE)] if idle is not None else []),
            Evidence("batches", f"batches waited for {facts.in_steps}", found.calls, ""),
            *(
                [
                    Evidence(
                        "loader_s_per_batch", "in the loader per batch, the device working or not", found.loader_ns / 1e9 / found.calls, "s"
                    )
                ]
                if found.calls
                else []
            ),
        ],
        fix="record the training with `feedline run`: it shows what the loader's workers do in that time, and why",
        disproof="a training that is no faster on batches that are in memory already",
        cost_s=facts.cost_s("input"),
    )
