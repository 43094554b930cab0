"""The model, or its loss, goes through a dimension of a tensor in a Python loop.

Or the training loop calls the model for each sample of a batch on its own.
"""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import SHARE, CostKind, Evidence, Finding, Refused, Severity
from feedline.analysis.ledger.rule import LESS_TO_COMPUTE, Rule
from feedline.analysis.ledger.view.model_code import ModelLoop, model_loop, plain_loop
from feedline.analysis.measure.clues import OneByOne
from feedline.analysis.measure.code_places import FORWARD
from feedline.analysis.text.sentences import COUNT, FUNCTION, PERCENT, Sentence

_RULE_ID = "loop_in_model"

_SAYS = Sentence(
    "{function} goes through a tensor in a Python loop, which takes {part} of the step",
    function=FUNCTION,
    part=PERCENT,
)
_EACH = "each operation on a part costs as much in Python as one on the whole"
_BACKWARD = "the backward pass, which goes through them again, is not part of this figure"
_SAYS_PLAIN = Sentence(
    "{function} goes through a Python loop inside the model, which takes {part} of the step",
    function=FUNCTION,
    part=PERCENT,
)
_PLAIN = "modules, and functions of torch that are called in it, are not part of this figure"
_FIX_PLAIN = "Compute it once, before training, or with operations on whole arrays or tensors."
_METRICS = "If it is a metric, compute it only in evaluation."
_FIX = "Compute on the whole tensor at once instead of on its parts."
_LAYER = "Where steps depend on each other, use a layer such as nn.LSTM, which loops in C++."
_SAYS_EACH = Sentence(
    "the model is called {calls} times in each step, once for each sample, which takes {part} of it",
    calls=COUNT,
    part=PERCENT,
)
_ALIKE = "a call costs as much in Python for one sample as for a batch"
_FIX_EACH = "Call the model once, with the whole batch."
_PAD = "Where samples differ in size, pad them, or group those of similar size."
#: Operations per second of the forward pass, on one core, from which on its products are what
#: takes the time: in products of 256 x 256, a core does 20e9 or more; in small ones, 2e9 to 6e9.
_MUCH_FLOPS = 10e9


def _check(facts: RuleInputs) -> Finding | None:
    """Weigh the loop, where the model computes little in the time that its forward takes."""
    if facts.on_gpu:
        return None
    plain, loop = plain_loop(facts), None if _computes(facts) else model_loop(facts)
    each_s, of_loops = _each_s(facts), [one.part.seconds for one in (plain, loop) if one]
    if facts.one_by_one is not None and each_s > max(of_loops, default=0.0):
        return _of_each(facts, facts.one_by_one, each_s)
    if loop is None or plain is not None and plain.part.seconds > loop.part.seconds:
        return None if plain is None else _of_plain(plain)
    if loop.part.severity is Severity.INFO:
        return None
    return Finding(
        _RULE_ID,
        loop.part.severity,
        message=_SAYS(function=loop.function, part=loop.part.share),
        more=[_EACH, _BACKWARD],
        evidence=loop.part.evidence("loop", "in the loop"),
        fix=_FIX,
        fix_more=[_LAYER],
        place=loop.part.place,
        how_to_check="Run one iteration of the loop instead of all. If the step takes as long, "
        "this finding is wrong.",
        cost_s=loop.part.seconds,
        cost_kind=CostKind.AT_LEAST,
    )


def _of_plain(loop: ModelLoop) -> Finding | None:
    """Weigh a loop that nothing of torch is computed in: no backward pass goes through it."""
    if loop.part.severity is Severity.INFO:
        return None
    return Finding(
        _RULE_ID,
        loop.part.severity,
        message=_SAYS_PLAIN(function=loop.function, part=loop.part.share),
        more=[_PLAIN],
        evidence=loop.part.evidence("loop", "in the loop"),
        fix=_FIX_PLAIN,
        fix_more=[_METRICS],
        place=loop.part.place,
        how_to_check="Leave the loop out for some steps, with a result from before. If they take "
        "as long, this finding is wrong.",
        cost_s=loop.part.seconds,
    )


def _each_s(facts: RuleInputs) -> float:
    """Return what calls of the model for one sample take of the step, less what one call takes."""
    each = facts.one_by_one
    if each is None or _computes(facts):
        return 0.0
    took = min(each.seconds, facts.step.stages.get(FORWARD, 0.0))
    return took - took / each.calls


def _of_each(facts: RuleInputs, each: OneByOne, seconds: float) -> Finding | None:
    """Weigh calls of the model for one sample each."""
    share = seconds / facts.step.mean_s
    weight = Severity.of(share)
    if weight is Severity.INFO:
        return None
    return Finding(
        _RULE_ID,
        weight,
        message=_SAYS_EACH(calls=each.calls, part=share),
        more=[_ALIKE, _BACKWARD],
        evidence=[
            Evidence("loop_s", "all calls but one, per step", seconds, "s"),
            Evidence("loop_share", "share of the step", share, SHARE),
            Evidence("calls", "calls of the model in a step", float(each.calls), "calls"),
            Evidence("batch_samples", "samples in a step", float(each.samples), "samples"),
        ],
        fix=_FIX_EACH,
        fix_more=[_PAD],
        place=each.place,
        how_to_check="Call the model with one sample only for some steps. If they take as long, "
        "this finding is wrong.",
        cost_s=seconds,
        cost_kind=CostKind.AT_LEAST,
    )


def _computes(facts: RuleInputs) -> bool:
    """Tell whether products may be what takes the time; also where they were not counted."""
    flop, step = facts.step.flop, facts.step
    took = step.stages.get("forward", 0.0) + step.stages.get("loss", 0.0)
    batch = facts.throughput.batch_size
    if flop is None or took <= 0:
        return True
    per_step = flop.forward * (batch / flop.samples if batch and flop.samples else 1.0)
    return per_step / took > _MUCH_FLOPS


def _change(facts: RuleInputs) -> Refused:
    """Refuse to predict: what the same takes on whole tensors is not known."""
    return Refused("loop", "What the same takes on whole tensors is not known: try it.")


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    claims=("forward", "loss"),
    bound="Bound by a Python loop of small operations",
    lifts=LESS_TO_COMPUTE,
    supposing="if the loop took no time",
    action="replace this Python loop",
)
