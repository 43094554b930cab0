"""A call that people report again and again as slow is made inside the model, in each step."""

from dataclasses import dataclass

from feedline.analysis.ledger.calls_per_step import FILLED_IN_STEP, PARAMETRIZED, PER_STEP
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import (
    SHARE,
    Change,
    CostKind,
    Evidence,
    Factor,
    Finding,
    Refused,
    Severity,
)
from feedline.analysis.ledger.known_call import CallFound, in_loop, known_call, of_frames
from feedline.analysis.ledger.rule import LESS_TO_COMPUTE, Rule
from feedline.analysis.ledger.view.slow_code import enough, reported
from feedline.analysis.measure.code_places import BACKWARD, EVALUATION, FORWARD, LOSS
from feedline.analysis.measure.code_tree import MAIN, PlaceTree, SampledCode
from feedline.analysis.measure.source_lines import SourceLines
from feedline.analysis.measure.user_code import main_weight
from feedline.analysis.text.sentences import NAME, PERCENT, Sentence

_RULE_ID = "call_in_model"

_SAYS = Sentence(
    "a call in the model's {stage} at {place} takes {part} of the step",
    stage=NAME,
    place=NAME,
    part=PERCENT,
)
_BACKWARD = "the backward pass, which goes through it again, is not part of this figure"
_CACHED = "get_cached_parametrization"  # with parametrize.cached() around it
_LEAST = 0.05  # of a stage
#: Place of samples -> stages that they stand for: a loss of the program's own, which is a module,
#: stands in forward.
_STAGES = {FORWARD: (FORWARD, LOSS), BACKWARD: (BACKWARD,)}
#: What models compute themselves: norms of activations, sums over ranks of a layer that is split.
#: A loop that fills a tensor is told of as a loop (loop_in_model).
_OF_MODELS = ("norms", "reduced", FILLED_IN_STEP.name)
#: Calls that count there: those that cost the host the same whatever computes.
_CALLS = tuple(call for call in PER_STEP if not call.on_gpu and call.name not in _OF_MODELS)


@dataclass(frozen=True)
class _Called:
    """A known call in a stage of the model.

    Attributes:
        share: of the stage that it takes, from 0 to 1.
        seconds: of the mean step.
    """

    found: CallFound
    stage: str
    share: float
    seconds: float


def _called(facts: RuleInputs) -> _Called | None:
    """Return the known call that takes most of a stage of the model; None: there is none."""
    calls = []
    for stage in _STAGES:
        tree = facts.code.places.get((MAIN, stage)) if facts.code is not None else None
        if facts.code is None or tree is None or not tree.weight.seconds:
            continue
        for found in (
            known_call(tree.inside, _CALLS, facts.code.source, _LEAST),
            _parametrized(tree, facts.code.source),
        ):
            share = found.seconds / tree.weight.seconds if found is not None else 0.0
            if found is not None and enough(found.seconds, tree.weight):
                seconds = share * _took_s(facts, facts.code, tree, stage)
                calls.append(_Called(found, stage, share, seconds))
    return max(calls, key=lambda call: call.seconds, default=None)


def _took_s(facts: RuleInputs, code: SampledCode, tree: PlaceTree, stage: str) -> float:
    """Return what a place's stages take of the mean step, by records and by samples: the smaller."""
    recorded_s = sum(facts.step.stages.get(one, 0.0) for one in _STAGES[stage])
    sampled = tree.weight.seconds / main_weight(code, EVALUATION).seconds
    return min(recorded_s, sampled * facts.step.mean_s)


def _parametrized(tree: PlaceTree, source: SourceLines) -> CallFound | None:
    """Return the parametrized weights that lines in loops of the program use; None: there are none.

    Elsewhere a weight is computed once in each pass, which has to be.
    """
    lines: dict[tuple[str, int], float] = {}
    for node in tree.inside.under():
        for line, chains in node.below.items():
            of_weights_s = sum(
                seconds
                for chain, seconds in chains.items()
                if any(of_frames((PARAMETRIZED,), (frame,)) for frame in chain)
                and not any(frame.function.endswith(_CACHED) for frame in chain)
            )
            if of_weights_s and in_loop(source, node, line):
                lines[node.file, line] = of_weights_s
    if not lines:
        return None
    file, line = max(lines, key=lambda place: lines[place])
    return CallFound(PARAMETRIZED, sum(lines.values()), file, line)


def _check(facts: RuleInputs) -> Finding | None:
    """Weigh the call that takes most, and say what to do instead."""
    called = _called(facts)
    if called is None:
        return None
    share, call = called.seconds / facts.step.mean_s, called.found.call
    if Severity.of(share) is Severity.INFO:
        return None
    place = f"{called.found.file}:{called.found.line}"
    return Finding(
        _RULE_ID,
        Severity.of(share),
        message=_SAYS(stage=called.stage, place=place, part=share),
        more=[call.says, *([_BACKWARD] if call.in_graph else [])],
        evidence=[
            Evidence("call_s", "the call, per step", called.seconds, "s"),
            Evidence("call_share", "share of the step", share, SHARE),
            reported(call, called.share, f"the {called.stage} pass"),
        ],
        fix=f"{call.fix}.",
        place=place,
        how_to_check="Leave the call out for some steps. If they take as long, this finding is "
        "wrong.",
        cost_s=called.seconds * (1 - (call.left or 0.0)),
        # the backward pass goes through it as well, which is spared too
        cost_kind=CostKind.AT_LEAST if call.in_graph else CostKind.ESTIMATED,
    )


def _change(facts: RuleInputs) -> Change | Refused:
    """Return the stage with what the call's fix leaves of it."""
    called = _called(facts)
    left = called.found.call.left if called is not None else None
    if called is not None and called.found.call.in_graph:
        return Refused("backward", "How much shorter the backward pass gets is not known.")
    if called is not None and left is None:
        return Refused("replaced", "How long what replaces this call takes is not known.")
    return _scaled(called, left or 0.0)


def _free(facts: RuleInputs) -> Change | Refused:
    """Return the stage without the call."""
    return _scaled(_called(facts), 0.0)


def _scaled(called: _Called | None, left: float) -> Change | Refused:
    if called is None:
        return Refused("no_call", "No such call was seen.")
    remains = 1 - called.share * (1 - left)
    return Change(stages=dict.fromkeys(_STAGES[called.stage], Factor(remains, remains)))


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    claims=(FORWARD, LOSS, BACKWARD),
    bound="Bound by a call in the model",
    lifts=LESS_TO_COMPUTE,
    supposing="if this call took no time",
    free=_free,
    action="speed up this call",
)
