"""The device stands still because the main thread waits for its loader."""

from feedline.analysis.ledger.finding import (
    SHARE,
    CostKind,
    Evidence,
    Finding,
    Refused,
    Severity,
    measured,
)
from feedline.analysis.ledger.rule import Needs, Rule
from feedline.analysis.ledger.trace_facts import TraceFacts
from feedline.analysis.text.sentences import NUMBER, PART, PERCENT, Sentence

_RULE_ID = "input_stall"

_IDLE = Sentence(
    "the device is idle for {part} of {whole} while the main thread waits for its loader",
    part=PERCENT,
    whole=PART,
)
_WAITS = Sentence("{part} of {whole} is spent waiting for the loader", part=PERCENT, whole=PART)
_FASTER = Sentence(
    "with batches always ready, the training would run about {times} times as fast", times=NUMBER
)


def _check(facts: TraceFacts) -> Finding | None:
    """Weigh the time in which the main thread was in the loader and no device worked.

    In a trace without a device, no operator worked.
    """
    found, part = facts.shown.input, facts.share("input")
    weight = Severity.of(part)
    if found.loader_ns is None or weight is Severity.INFO:
        return None
    idle = found.idle_explained_pct
    each_s = found.loader_ns / 1e9 / found.calls if found.calls else None
    return Finding(
        _RULE_ID,
        weight,
        message=(_WAITS if found.stall_ns is None else _IDLE)(part=part, whole=facts.whole),
        more=[_FASTER(times=1 / (1 - part))] if part < 1 else [],
        evidence=[
            Evidence("input_share", "input stall", part, SHARE),
            *measured(
                [
                    (
                        "share_of_idle",
                        "share of the device's idle time",
                        idle / 100 if idle is not None else None,
                        SHARE,
                    )
                ]
            ),
            Evidence("batches", f"batches waited for {facts.in_steps}", found.calls, ""),
            *measured(
                [
                    (
                        "loader_s_per_batch",
                        "time in the loader per batch, including while the device is busy",
                        each_s,
                        "s",
                    )
                ]
            ),
        ],
        fix="Raise num_workers, or make samples cheaper: `feedline run` shows which of them helps.",
        how_to_check="Train on one batch that stays in memory. If the step is no faster, this "
        "finding is wrong.",
        cost_s=facts.cost_s("input"),
        cost_kind=CostKind.BOUND,
    )


def _change(facts: TraceFacts) -> Refused:
    """Refuse to predict: a trace has no loader to replay."""
    return Refused(
        "no_loader",
        "A trace does not show how workers make batches. Record the training with `feedline run` "
        "to get a prediction.",
    )


RULE: Rule[TraceFacts] = Rule(
    _RULE_ID,
    _check,
    _change,
    claims=("input",),
    needs=Needs.TRACED_INPUT,
    action="make the input faster",
)
