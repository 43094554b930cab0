"""From the facts of a run, or of traces, to findings.

It asks the rules, and decides which of their findings are told.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from feedline.analysis.convergence.checks import GRAVE, without_same_fix
from feedline.analysis.explain.model import MAX_FINDINGS
from feedline.analysis.explain.order import Rows, claimed, in_order, without_contradictions
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import CostKind, Evidence, Finding, Severity
from feedline.analysis.ledger.rule import F, Rule
from feedline.analysis.ledger.trace_facts import TraceFacts
from feedline.analysis.ledger.view.enough_steps import enough_steps
from feedline.analysis.ledger.view.input_wait import MIN_WAIT_SHARE, num_workers, steady_share
from feedline.analysis.ledger.view.loop_code import sure_of_the_rest
from feedline.analysis.ledger.view.recorded_ranks import recorded
from feedline.analysis.rules import (
    BY_ID,
    CROSS_RANK,
    DATA,
    ENDED,
    INPUT,
    LOOP,
    MACHINE,
    TRACE,
    unknown_input,
)
from feedline.analysis.rules.input import (
    borderline_input,
    compute_bound,
    gpu_bound,
    input_bound_unexplained,
    input_not_seen,
    made_in_step,
)

_MIN_EXPLAINED = 1 / 3
# told beside those: they say nothing of the input
_LOOP_IDS = frozenset(rule.rule_id for rule in LOOP)


#: Adds to findings what their fixes would give, or why that is not predicted.
Predicted = Callable[[list[Finding]], list[Finding]]


def diagnose(
    facts: RuleInputs, checks: Sequence[Finding] = (), predicted: Predicted = list
) -> list[Finding]:
    """Return what holds a run back, most important first.

    At most three findings besides those of the loop are not info; those that are follow them. It
    says nothing of a run that trained nothing, or that is too short. It speaks of the input only if
    the step waits for it at least 5 % of its time (the loader's only start aside); otherwise it says
    that it does not, or, without a loader, that it cannot tell. What ranks cost each other is looked
    at in any case.

    Args:
        checks: what is wrong with how the training is set up. Of it, only what is of high severity
            is told here.
        predicted: adds to findings what their fixes would give.
    """
    enough, ranks, rows, mean_s = (
        enough_steps(facts),
        recorded(facts),
        facts.rows,
        facts.step.mean_s,
    )
    between = _found(CROSS_RANK, ranks) if enough and ranks else []
    around, of_loop = (_found(rules, facts) if enough else [] for rules in (MACHINE, LOOP))
    own = [_with_idle_workers(finding, facts) for finding in _causes_of_input(facts)]
    between = [_with_loader_fix(finding, in_order(own, rows, mean_s)) for finding in between]
    wrong = _wrong(checks)
    grave = [
        *_found(ENDED, facts),
        *_found(DATA, facts),
        *(finding for finding in wrong if finding.rule_id in GRAVE),
    ]
    own += [
        _with_idle_workers(finding, facts)
        for finding in _statement(facts, own, [*of_loop, *between], around)
    ]
    others = [
        *map(_estimated, (*around, *own, *of_loop, *between)),
        *(finding for finding in wrong if finding not in grave),
    ]
    grave, others = predicted(grave), predicted(others)
    others = [_with_place(finding, facts) for finding in others]
    ending = [finding for finding in others if _ends_training(finding)]
    outside = [finding for finding in others if _outweighs_steps(finding, others, facts)]
    rest = [finding for finding in others if finding not in (*ending, *outside)]
    return _told(
        [
            *grave,
            *ending,
            *outside,
            *(_with_claims(finding, rows) for finding in in_order(rest, rows, mean_s)),
        ]
    )


def diagnose_traces(facts: TraceFacts, predicted: Predicted = list) -> list[Finding]:
    """Return the same of traces."""
    findings = predicted([*_found(TRACE, facts), *_found(CROSS_RANK, facts.ranks)])
    rows = facts.rows
    ranked = [_with_claims(_estimated(finding), rows) for finding in in_order(findings, rows, 1.0)]
    if not facts.shown.basis.steps:  # what a cause costs per step is unknown
        ranked = [replace(finding, cost_s=0.0, cost_kind=CostKind.UNKNOWN) for finding in ranked]
    return _told(ranked)


def _found(rules: Iterable[Rule[F]], run: F) -> list[Finding]:
    """Return what the rules find."""
    return [finding for rule in rules if (finding := rule.check(run)) is not None]


def _causes_of_input(facts: RuleInputs) -> list[Finding]:
    """Return what makes steps wait for their input.

    It is nothing where that is unknown, or less than the gate.
    """
    if unknown_input(facts):
        return []
    if facts.loader is None or facts.loader_elsewhere:
        near = borderline_input.check(facts) if sure_of_the_rest(facts) else None
        finding = (
            made_in_step.check(facts)
            if facts.loader is None and "input" in facts.step.stages and not near
            else None
        )
        return [finding] if finding else []
    if borderline_input.check(facts) or steady_share(facts) < MIN_WAIT_SHARE:
        return []
    return without_contradictions(_found(INPUT, facts), facts.rows)


def _statement(
    facts: RuleInputs,
    causes: Sequence[Finding],
    beside: Sequence[Finding],
    around: Sequence[Finding],
) -> list[Finding]:
    """Return what is said of the input where no cause is known.

    It does not hold the run back, or that is unknown.

    Args:
        causes: of the time that it takes.
        beside: findings about the loop and other ranks. A rank that waits for its loader, or any
            that asks for a change, say what holds it back.
        around: findings about the machine: only those that cost much explain the wait.
    """
    if unknown := unknown_input(facts):
        return [unknown]
    loader_elsewhere = any(
        finding.blame is not None and finding.blame.phase == "wait" for finding in beside
    )
    asked = any(_asks(finding) for finding in beside)
    compute = None if asked or loader_elsewhere else compute_bound.check
    if facts.loader is None or facts.loader_elsewhere:
        said = None if causes else _without_a_loader(facts, loader_elsewhere, asked)
    elif near := borderline_input.check(facts):
        said = None if loader_elsewhere else near
    elif steady_share(facts) < MIN_WAIT_SHARE:
        said = compute(facts) if compute else None
    elif any(map(_asks, causes)) or any(_explains(finding, facts) for finding in around):
        said = None
    else:
        said = (
            None if loader_elsewhere else gpu_bound.check(facts)
        ) or input_bound_unexplained.check(facts)
    return [said] if said else []


def _without_a_loader(facts: RuleInputs, loader_elsewhere: bool, asked: bool) -> Finding | None:
    """Return what is known of the input where no loader of the steps was seen."""
    if facts.loader is None and "input" in facts.step.stages:
        if sure_of_the_rest(facts) and (near := borderline_input.check(facts)):
            return None if loader_elsewhere else near
        not_held = compute_bound.check(facts) if sure_of_the_rest(facts) else None
    else:
        not_held = compute_bound.without_a_loader(facts) if facts.loader is None else None
    if not_held is not None:
        return None if asked or loader_elsewhere else not_held
    return input_not_seen.check(facts)


def _with_idle_workers(finding: Finding, facts: RuleInputs) -> Finding:
    """Put the workers that never made a batch first in the evidence.

    Figures of workers are those of the others.
    """
    if not facts.idle_workers or finding.severity is Severity.INFO:
        return finding
    never = Evidence(
        "idle_workers",
        f"workers that never made a batch, of {num_workers(facts)}",
        facts.idle_workers,
        "workers",
    )
    return replace(finding, evidence=[never, *finding.evidence])


def _with_loader_fix(finding: Finding, causes: Sequence[Finding]) -> Finding:
    """Add what holds back the loader that the finding blames.

    It is added where that is the loader of the rank that is shown.
    """
    top = next(filter(_asks, causes), None)
    if (
        top is None
        or finding.blame is None
        or finding.blame.rank is None
        or finding.blame.phase != "wait"
    ):
        return finding
    finding = replace(finding, place=top.place, condition=top.condition)
    if top.settings:  # a line of code
        others = [*finding.fix_more, f"Or: {top.fix}", *top.fix_more]
        return replace(finding, fix_more=others)
    other = f"Or {finding.fix[:1].lower()}{finding.fix[1:]}"
    others = [*top.fix_more, other, *finding.fix_more]
    return replace(finding, fix=top.fix, fix_more=others)


def _explains(finding: Finding, facts: RuleInputs) -> bool:
    """Tell whether what the machine costs is much, or much of the wait.

    Then it need not be called unexplained.
    """
    return (
        finding.severity is Severity.HIGH
        or finding.cost_s >= _MIN_EXPLAINED * steady_share(facts) * facts.step.mean_s
    )


def _with_claims(finding: Finding, rows: Rows) -> Finding:
    """Return the finding, with the rows of the ledger that it explains."""
    return replace(finding, claims=sorted(claimed(finding, rows)))


def _with_place(finding: Finding, facts: RuleInputs) -> Finding:
    """Return the finding, with the line that makes the loader where it names arguments of it.

    Its rule says at which line another fix is. What other programs do is at no line.
    """
    rule = BY_ID.get(finding.rule_id)
    if finding.place or not finding.settings or (rule is not None and rule.of_others):
        return finding
    return replace(finding, place=str(facts.setting("made_at") or ""))


def _asks(finding: Finding) -> bool:
    """Tell whether it asks for a change."""
    return finding.severity is not Severity.INFO


def _ends_training(finding: Finding) -> bool:
    """Tell whether a longer training ends by what it names, soon."""
    rule = BY_ID.get(finding.rule_id)
    return rule is not None and rule.ends_training and finding.severity is Severity.HIGH


def _outweighs_steps(finding: Finding, others: Sequence[Finding], facts: RuleInputs) -> bool:
    """Tell whether what it names lies outside the steps, and is worth more than any cause in them.

    It is where it takes half of the time or more, or where its fix spares more of the run than what
    any other one costs.
    """
    rule, step = BY_ID.get(finding.rule_id), facts.step
    if rule is None or not rule.outside_steps or not _asks(finding):
        return False
    steps = facts.all_steps_s / step.mean_s if step.mean_s else 0.0
    most_s = steps * max((other.cost_s for other in others), default=0.0)
    return step.evaluating_s >= facts.all_steps_s or (finding.outside_s or 0.0) > most_s


def _estimated(finding: Finding) -> Finding:
    """Return the finding, whose cost is an estimate if its rule does not know better."""
    unsaid = finding.cost_s > 0 and finding.cost_kind is CostKind.UNKNOWN
    return replace(finding, cost_kind=CostKind.ESTIMATED) if unsaid else finding


def _told(ranked: Sequence[Finding]) -> list[Finding]:
    asking = [finding for finding in ranked if _asks(finding)]
    most = [finding for finding in asking if finding.rule_id not in _LOOP_IDS][:MAX_FINDINGS]
    shown = [finding for finding in asking if finding in most or finding.rule_id in _LOOP_IDS]
    return shown + [finding for finding in ranked if not _asks(finding)]


def _wrong(checks: Sequence[Finding]) -> list[Finding]:
    return without_same_fix([finding for finding in checks if finding.severity is Severity.HIGH])
