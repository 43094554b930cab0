"""The step waits for its input, but the GPU has so much to do that no faster input helps."""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import (
    NOTHING_TO_CHANGE,
    SHARE,
    CostKind,
    Evidence,
    Finding,
    Refused,
    Severity,
)
from feedline.analysis.ledger.rule import Rule
from feedline.analysis.ledger.view.input_wait import MIN_WAIT_SHARE, steady_share
from feedline.analysis.text.sentences import PERCENT, TIME, Sentence

_RULE_ID = "gpu_bound"

_SAYS = Sentence(
    "the GPU is the limit: it is busy for {busy} of each {step} step", busy=TIME, step=TIME
)
_AT_MOST = Sentence(
    "the input takes {part} of the step, but a faster one would save at most {idle}",
    part=PERCENT,
    idle=PERCENT,
)
_NOTHING = Sentence(
    "the input takes {part} of the step, but a faster one would save nothing", part=PERCENT
)
_NO_CHANGE = "No change to the input is needed."


def check(facts: RuleInputs) -> Finding | None:
    """Compare the GPU's work per step with the step.

    What is left is all that a faster input, or host, can save.
    """
    step, work, waiting = facts.step, facts.step.gpu_work, steady_share(facts)
    if work is None or work.ranks > 1 or (idle := 1 - work.busy_s / step.mean_s) >= MIN_WAIT_SHARE:
        return None
    idle = max(idle, 0.0)
    return Finding(
        _RULE_ID,
        Severity.INFO,
        message=_SAYS(busy=work.busy_s, step=step.mean_s),
        more=[_AT_MOST(part=waiting, idle=idle) if idle else _NOTHING(part=waiting)],
        evidence=[
            Evidence("gpu_busy_s", "GPU busy, per step", work.busy_s, "s"),
            Evidence("gpu_idle_share", "GPU idle, share of the step", idle, SHARE),
            Evidence("input_share", "input, share of the step", waiting, SHARE),
            Evidence("profiled_steps", "steps recorded by torch.profiler", work.steps, ""),
        ],
        fix=f"Give the GPU less to do per sample: {', '.join(_less_work(facts))}.",
        fix_more=[_NO_CHANGE],
        how_to_check="Train on the same batch in every step. If the step gets much faster, this "
        "finding is wrong.",
        cost_s=idle * step.mean_s,
        cost_kind=CostKind.BOUND,
    )


def _less_work(facts: RuleInputs) -> list[str]:
    """Say what the training does not do yet, and could."""
    flop = facts.step.flop
    halved = flop is not None and flop.computed_in in ("float16", "bfloat16")
    return [
        *([] if halved else ["a lower precision"]),
        *([] if facts.compiled else ["torch.compile"]),
        "smaller images" if facts.decodes_images else "smaller inputs or a smaller model",
    ]


def _change(facts: RuleInputs) -> Refused:
    """Return why nothing is predicted: there is nothing to fix."""
    return NOTHING_TO_CHANGE


RULE: Rule[RuleInputs] = Rule(_RULE_ID, check, _change, of_input=True)
