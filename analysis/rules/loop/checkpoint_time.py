"""Saving checkpoints takes part of the step."""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import SHARE, Evidence, Finding, Refused, Severity, measured
from feedline.analysis.ledger.rule import LESS_TO_COMPUTE, Rule
from feedline.analysis.ledger.view.cpus import kind_of_work
from feedline.analysis.ledger.view.loop_code import line_of_stage
from feedline.analysis.measure.code_places import CHECKPOINT
from feedline.analysis.text.formatting import counted
from feedline.analysis.text.sentences import PART, PERCENT, SIZE, TIME, Sentence

_RULE_ID = "checkpoint_time"

_SAYS = Sentence(
    "torch.save takes {part} of the step time: {once} {how_often}",
    part=PERCENT,
    once=TIME,
    how_often=PART,
)
_FIX = (
    "Save less often, or copy the state to memory and save it in a thread "
    "(torch.distributed.checkpoint.async_save)."
)

_LARGE = Sentence(
    "a checkpoint has {saved}: the parameters that are trained, and their optimizer's state, "
    "take about {needed}",
    saved=SIZE,
    needed=SIZE,
)
_LEAVE_OUT = (
    "Save only what a restart needs: leave out data, buffers of samples, and frozen parameters that "
    "can be reloaded."
)
_CLONE = "Clone views first: torch.save writes all of the tensor that a view is a part of."
#: Bytes of a parameter with two of the optimizer's states of it; and what else may be saved: it is
#: this many times as much, and this many bytes more.
_OF_STATE, _TIMES_MORE, _BYTES_MORE = 12.0, 4.0, 1e6

_MIN_SHARE = 0.05  # of the mean step
_MIN_STEPS = 2  # with a checkpoint: one says nothing of how often they come


def _check(facts: RuleInputs) -> Finding | None:
    """Say how long one takes, and in how many steps there is one."""
    step, row = facts.step, facts.ledger.step.row(CHECKPOINT) if facts.ledger else None
    if row is None or not row.steps or row.s < _MIN_SHARE * step.mean_s:
        return None
    number = facts.throughput.steps * row.steps
    if number < _MIN_STEPS:
        return None
    once_s, every = row.s / row.steps, round(row.period or 1 / row.steps)
    # of sharded parameters each optimizer has a part, a checkpoint perhaps all
    needed = _OF_STATE * facts.updated.elements if facts.updated and not facts.sharded else None
    saved = facts.saved_bytes
    large = saved and needed and saved > _TIMES_MORE * needed + _BYTES_MORE
    how_often = "in each step" if every == 1 else f"every {counted(every, 'step')}"
    return Finding(
        _RULE_ID,
        Severity.of(row.s / step.mean_s),
        message=_SAYS(part=row.s / step.mean_s, once=once_s, how_often=how_often),
        more=[_LARGE(saved=saved, needed=needed)] if large else [],
        evidence=[
            Evidence("checkpoint_s", "saving, per step", row.s, "s"),
            Evidence("checkpoint_share", "share of the step", row.s / step.mean_s, SHARE),
            Evidence("checkpoint_once_s", "saving, per step with a checkpoint", once_s, "s"),
            *measured([("checkpoint_bytes", "size of a checkpoint", saved, "B")]),
        ],
        fix=_LEAVE_OUT if large else _FIX,
        fix_more=[_CLONE, _FIX] if large else [],
        place=line_of_stage(facts, CHECKPOINT),
        how_to_check="Train without saving. If samples/s do not rise, this finding is wrong.",
        cost_s=row.s,
        cost_kind=kind_of_work(facts),
    )


def _change(facts: RuleInputs) -> Refused:
    """Refuse to predict.

    How often checkpoints are needed, only the program's author knows.
    """
    return Refused("checkpoints", "How often checkpoints are needed is unknown.")


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    claims=(CHECKPOINT,),
    bound="Bound by checkpoints",
    lifts=LESS_TO_COMPUTE,
    supposing="if saving took no time",
    action="save less often",
)
