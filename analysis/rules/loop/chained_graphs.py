"""Each backward pass goes through the graphs of the steps before."""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import SHARE, CostKind, Evidence, Finding, Refused, Severity
from feedline.analysis.ledger.rule import LESS_TO_COMPUTE, Rule
from feedline.analysis.ledger.view.enough_steps import grows
from feedline.analysis.measure.code_places import BACKWARD
from feedline.analysis.text.sentences import COUNT, PART, Sentence

_RULE_ID = "chained_graphs"

_SAYS = Sentence(
    "each backward pass goes through the graphs of the steps before: the last take {times} times "
    "as long as the first",
    times=PART,
)
_ALIVE = Sentence(
    "of {graphs} graphs of past steps that were looked at, {alive} are still in memory",
    graphs=COUNT,
    alive=COUNT,
)
_LONGER = "a longer training gets slower still, and may run out of memory"
_FIX = "Detach what goes from one step to the next, such as state = state.detach()."
_NO_NEED = "Then backward() needs no retain_graph=True."


def _check(facts: RuleInputs) -> Finding | None:
    """Compare the backward passes of the last steps with the first, where graphs are kept."""
    times, kept = grows(facts, BACKWARD), facts.kept
    if times is None or kept is None:
        return None
    step, took = facts.step, facts.step.stages.get(BACKWARD, 0.0)
    cost_s = took - 2 * took / (1 + times)  # the mean is halfway between the first and the last
    weight = Severity.of(cost_s / step.mean_s)
    if weight is Severity.INFO:
        return None
    return Finding(
        _RULE_ID,
        weight,
        message=_SAYS(times=f"{times:.2g}"),
        more=[_ALIVE(graphs=kept.looked_at, alive=kept.alive), _LONGER],
        evidence=[
            Evidence("backward_s", "backward, per step", took, "s"),
            Evidence("backward_share", "share of the step", took / step.mean_s, SHARE),
            Evidence("trend", "last third of the steps over the first", times, "1"),
            Evidence("graphs", "graphs of past steps", float(kept.looked_at), "graphs"),
            Evidence("graphs_alive", "of them in memory", float(kept.alive), "graphs"),
        ],
        fix=_FIX,
        fix_more=[_NO_NEED],
        place=kept.place,
        how_to_check="Time backward() at the beginning and at the end. If it takes as long, this "
        "finding is wrong.",
        cost_s=cost_s,
        cost_kind=CostKind.AT_LEAST,
    )


def _change(facts: RuleInputs) -> Refused:
    """Refuse to predict: it depends on how long the training runs."""
    return Refused("longer", "What it costs grows with the number of steps.")


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    claims=(BACKWARD,),
    bound="Bound by graphs of past steps",
    lifts=LESS_TO_COMPUTE,
    supposing="if each backward took as long as the first",
    action="detach the state",
)
