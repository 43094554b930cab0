"""No update of parameters was seen: the program trained nothing, or in a way that feedline cannot see."""

from feedline.analysis.facts import Facts
from feedline.analysis.finding import Evidence, Finding, Severity
from feedline.analysis.quantities import count

CAUSE = "nothing_trained"
#: Before the verdict of a program that only calls its model.
PREFIX = "Nothing was trained (no optimizer update, no backward pass was seen); steps are the loader's batches. "


def check(facts: Facts) -> Finding | None:
    """Say so where batches were made, and no model was called with them."""
    if facts.step.boundary != "loader" or only_infers(facts):
        return None
    batches = facts.throughput.steps
    return Finding(
        CAUSE,
        Severity.INFO,
        says=f"no training was seen: {count(batches)} batch{'es' * (batches != 1)} came from the loader, but no model was called, and "
        "there was no backward pass and no optimizer update; what limits the training is unknown",
        evidence=[Evidence("batches", "batches", batches, "batches"), Evidence("batch_s", "time per batch", facts.step.mean_s, "s")],
        fix="let it train for a few dozen steps; `feedline env` shows which calls feedline can see",
        disproof="the program did call or update a model: then its hook failed (see hooks)",
    )


def only_infers(facts: Facts) -> bool:
    """Whether batches went into a model, and nothing was learned."""
    return facts.step.boundary == "loader" and facts.step.stages.get("forward", 0.0) > 0
