"""Whether a run trained, whether its steps are enough to say what takes them, and if they drift."""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.view.input_wait import MIN_WAIT_SHARE
from feedline.analysis.text.sentences import NAME, PART, RANGE, Sentence

REFUSED = "No training was seen whose throughput could be predicted."
INTERVAL = Sentence("the 95 % interval of that share is {ends}", ends=RANGE)

#: Steps that a verdict needs at least (docs/rules/too_short.md: measured on pieces of longer runs).
MIN_VERDICT_STEPS = 8

#: From here on a step is called highly input-bound (Severity.of).
HIGH_SHARE = 0.20
_GROWS = 2.0  # of what a stage takes in the first third of the steps: it gets longer with them
_SAYS = Sentence(
    "{stage} takes {times} times as long in the last third of the steps as in the first",
    stage=NAME,
    times=PART,
)


def input_known(facts: RuleInputs) -> bool:
    """Tell whether the input's share is known: from a loader, or from a stage of its own."""
    return facts.loader is not None or "input" in facts.step.stages


def enough_steps(facts: RuleInputs) -> bool:
    """Tell whether there are as many steps as any verdict needs."""
    return facts.certainty is None or facts.certainty.steps >= MIN_VERDICT_STEPS


def maybe_below(facts: RuleInputs) -> bool:
    """Tell whether the interval of the input's share also contains shares that do not count."""
    return facts.certainty is not None and facts.certainty.low < MIN_WAIT_SHARE


def only_infers(facts: RuleInputs) -> bool:
    """Tell whether batches went into a model, and nothing was learned."""
    return facts.step.boundary == "loader" and facts.step.stages.get("forward", 0.0) > 0


def grows(facts: RuleInputs, stage: str) -> float | None:
    """Return how many times as long a stage takes in the last third of the steps as in the first.

    None: less than twice, or not known.
    """
    row = facts.ledger.step.row(stage) if facts.ledger is not None else None
    return row.trend if row is not None and row.trend is not None and row.trend >= _GROWS else None


def growing(facts: RuleInputs, stage: str, called: str) -> list[str]:
    """Return a sentence of a stage that gets longer; nothing else.

    Args:
        called: the stage, in words.
    """
    times = grows(facts, stage)
    return [] if times is None else [_SAYS(stage=called, times=f"{times:.2g}")]
