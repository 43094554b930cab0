"""Every nth step takes longer, for something that the program does only then."""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import (
    SHARE,
    Change,
    Evidence,
    Factor,
    Finding,
    Severity,
    measured,
)
from feedline.analysis.ledger.rule import LESS_TO_COMPUTE, Rule
from feedline.analysis.ledger.view.loop_code import known_in_function
from feedline.analysis.measure.stages import STAGES
from feedline.analysis.measure.step_model import PeriodicStall
from feedline.analysis.text.formatting import called, counted
from feedline.analysis.text.sentences import NAME, PART, PERCENT, TIME, Sentence

_RULE_ID = "periodic_stall"

_SAYS = Sentence(
    "every {steps}, one step takes {longer} longer: {part} of all step time",
    steps=PART,
    longer=TIME,
    part=PERCENT,
)
_IN = Sentence("{part} of that is in {function}", part=PERCENT, function=NAME)
_CALLS = Sentence("it calls {library}", library=NAME)
_STAGE = Sentence("most of it lies in the stage {stage}", stage=NAME)
_UNKNOWN = "which line of the program takes it is not known"
_OF_MODEL = "that is work of the model itself, which only these steps may need"
_GPU = "on a GPU, such a step may wait for work that those before it have queued"
_LESS_OFTEN = Sentence(
    "Run {function} less often, or in a background thread.",
    function=NAME,
)
_FIND = Sentence("Look for what the program does only every {steps}, such as logging.", steps=PART)

#: Stages in which all that runs is the model, and the library that runs it.
_COMPUTING = tuple(spec.name for spec in STAGES if spec.family == "compute" and spec.name != "loss")
_MODEL = ("", "torch")
_RARELY, _RARE = "every 50 steps", 50  # a fix that asks for it, where it is done as rarely


def _check(facts: RuleInputs) -> Finding | None:
    """Say how often, how much longer, and at which line."""
    stall, mean_s = facts.step.periodic, facts.step.mean_s
    if stall is None:
        return None
    of_model, on_gpu = _is_of_model(stall), _may_be_the_gpu(facts, stall)
    told = not of_model and not on_gpu
    steps = counted(stall.period, "step")
    return Finding(
        _RULE_ID,
        Severity.of(stall.s / mean_s) if told else Severity.INFO,
        message=_SAYS(steps=steps, longer=stall.longer_s, part=stall.s / mean_s),
        more=[*_more(stall, of_model), *([_GPU] if on_gpu else [])],
        evidence=[
            Evidence("stall_s", "what they take longer, per step", stall.s, "s"),
            Evidence("stall_share", "share of the step", stall.s / mean_s, SHARE),
            Evidence("stall_once_s", "what one takes longer, the median", stall.longer_s, "s"),
            Evidence("period", "steps from one to the next", float(stall.period), "steps"),
            Evidence("stalls", "such steps that were recorded", float(stall.number), "steps"),
            *measured(
                [
                    ("line_share", "of it, in the named function", _known(stall), SHARE),
                    ("looks", "samples of stacks in such steps", float(stall.looks) or None, "1"),
                ]
            ),
        ],
        fix=_fix(facts, stall) if told else "",
        place=stall.place,
        how_to_check=f"Leave it out for some hundred steps. If a step in {stall.period:,} still "
        "takes longer, this finding is wrong.",
        cost_s=stall.s if told else 0.0,
    )


def _fix(facts: RuleInputs, stall: PeriodicStall) -> str:
    """Return what to do instead, where the call is known; it may be rare enough already."""
    if not stall.place:
        return _FIND(steps=counted(stall.period, "step"))
    call = known_in_function(facts, stall.function)
    if call is None or _RARELY in call.fix and stall.period >= _RARE:
        return _LESS_OFTEN(function=called(stall.function))
    return f"{call.fix}."


def _known(stall: PeriodicStall) -> float | None:
    return stall.place_share if stall.place else None


def _main_stage(stall: PeriodicStall) -> str:
    return max(stall.stages, key=lambda stage: stall.stages[stage])


def _is_of_model(stall: PeriodicStall) -> bool:
    """Tell whether the model, its backward pass or its update takes longer, and nothing in it."""
    library = stall.library.partition(".")[0]
    return _main_stage(stall) in _COMPUTING and library in _MODEL


def _may_be_the_gpu(facts: RuleInputs, stall: PeriodicStall) -> bool:
    """Tell whether the GPU may work all the while, so that other steps only queue its work."""
    if not facts.on_gpu:
        return False
    work = facts.step.gpu_work
    return work is None or facts.step.mean_s - work.busy_s < stall.s


def _more(stall: PeriodicStall, of_model: bool) -> list[str]:
    where = _STAGE(stage=_main_stage(stall))
    if not stall.place:
        return [where, _OF_MODEL] if of_model else [where, _UNKNOWN]
    line = _IN(part=stall.place_share, function=called(stall.function))
    calls = [_CALLS(library=stall.library)] if stall.library else []
    return [line, *calls, where, *([_OF_MODEL] if of_model else [])]


def _change(facts: RuleInputs) -> Change:
    """Take it out of the stages that it lies in."""
    stall, stages = facts.step.periodic, facts.step.stages
    parts = stall.stages if stall is not None else {}
    left = {
        stage: max(1 - seconds / stages[stage], 0.0)
        for stage, seconds in parts.items()
        if stages.get(stage)
    }
    return Change(stages={stage: Factor(part, part) for stage, part in left.items()})


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    claims=("*/periodic",),
    bound="Bound by periodic work",
    lifts=LESS_TO_COMPUTE,
    supposing="if these steps took as long as the others",
    action="look into the longest steps",
)
