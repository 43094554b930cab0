"""Stages that take longer and longer while a training runs."""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.text.sentences import NAME, PART, Sentence

_GROWS = 2.0  # of what a stage takes in the first third of the steps: it gets longer with them
_SAYS = Sentence(
    "{stage} takes {times} times as long in the last third of the steps as in the first",
    stage=NAME,
    times=PART,
)


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
