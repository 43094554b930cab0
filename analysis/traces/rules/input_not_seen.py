"""The trace does not say when the training waits for its loader: that is not the same as never."""

from feedline.analysis.finding import Finding, Severity
from feedline.analysis.traces.facts import TraceFacts

CAUSE = "input_not_seen"


def check(facts: TraceFacts) -> Finding | None:
    """Abstain, with the reason."""
    reason = facts.shown.input.reasons.get("loader_pct")
    if reason is None:
        return None
    return Finding(
        CAUSE,
        Severity.INFO,
        says=f"whether the loader limits this training is unknown: {reason}",
        fix="record a few steps with torch.profiler around the loop that iterates a DataLoader, or the training with `feedline run`",
    )
