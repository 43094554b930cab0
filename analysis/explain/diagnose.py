"""From facts to findings, of recorded runs and of traces: the gate, the rules, and the order in which a person should act on them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from feedline.analysis.convergence.checks import DIVERGED, GRAVE
from feedline.analysis.explain.predictions import Predictions, refused_of_traces, untold
from feedline.analysis.formatting import seconds, sentence, share
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import SHARE, CostKind, Evidence, Finding, Severity, rates, saving
from feedline.analysis.ledger.trace_facts import TraceFacts, mean_step_s
from feedline.analysis.rules import BY_ID, CROSS_RANK, INPUT, LOOP, MACHINE, RULES, TRACE, Effort, F, Rule
from feedline.analysis.rules.cross_rank import late_rank
from feedline.analysis.rules.cross_rank.recorded import recorded
from feedline.analysis.rules.input import (
    borderline_input,
    compute_bound,
    cpu_saturated,
    cpus,
    gpu_bound,
    input_bound_unexplained,
    input_not_seen,
    made_in_step,
    nothing_trained,
    too_short,
)
from feedline.analysis.rules.input.handover import setting
from feedline.analysis.rules.input.input_wait import MIN_WAIT_SHARE, input_wait, num_workers, steady_share
from feedline.analysis.rules.trace import device_bound, host_bound
from feedline.analysis.traces.trace_budget import STEP_PARTS

MOST = 3  # findings that ask for a change: more is a list, not advice

#: cause -> causes whose fix should wait for it.
BEFORE = {rule.rule_id: frozenset(rule.before.split()) for rule in RULES if rule.before}

#: These say why workers cannot keep pace, and their fix names more workers where that helps. Without workers, ``too_few_workers`` goes
#: first: it gains more.
_EXPLAINS_SLOW_WORKERS = ("blocked", "small_files", "cold_storage", "swapping")

#: Their fix makes samples cheaper, and nothing else.
_OF_SAMPLES = ("decode_bound", "augmentation_bound")

#: What explains half of the cost of a fix that makes them pointless, or more, and keeps the workers, is told in its place.
_EXPLAINS_QUEUE = ("epoch_restart", "objects_in_queue", "custom_collate")

#: A specific finding goes first only if it can win this share of what the general one can; else it is a detail of it. In planted
#: trainings (tests/planted) decoding was half to three quarters of what full CPUs cost, as the machine was busy or not.
_MIN_PART = 1 / 3

#: What a fix gives at most counts half beside what is predicted: that can be relied on, and few stages can be removed altogether.
BOUND = 2.0

#: What a finding about how the training is set up makes of it.
_WRONG_SET_UP = "Misconfigured"
_WRONG = dict.fromkeys(GRAVE, _WRONG_SET_UP) | dict.fromkeys(DIVERGED, "Training diverged")
#: Told among the findings, but no answer to what holds the run back: a run that is only measured ends before its schedule.
_ASIDE = ("schedule_in_steps", "skipped_steps")

#: Told beside those: they say nothing of the input, and take no place of a finding that does.
_BESIDE = tuple(rule.rule_id for rule in LOOP)

#: What a run is called that waits for its input; the second, where the interval of its share also contains shares that do not count.
_SURE, _PERHAPS = "Input-bound", "Probably input-bound"

#: What these call a run does not depend on how much of the step they cost.
_WHOLE = ("busy_neighbors", "evaluation_time")

_COMMENT = "  # "  # of a line to change

#: Findings that the input of a rank does not hold it back, or hardly.
_NOT_HELD = (compute_bound.RULE_ID, borderline_input.RULE_ID, gpu_bound.RULE_ID)

_ORDER = [Severity.HIGH, Severity.LOW, Severity.INFO]


def diagnose(facts: RuleInputs, checks: Sequence[Finding] = (), predictions: Predictions | None = None) -> list[Finding]:
    """What holds a run back, most important first: at most three findings that are not info, then those that are.

    Says nothing of a run that trained nothing, or that is too short. Speaks of the input only if the step waits for it at least 5 % of its
    time (the loader's only start aside); otherwise says that it does not, or, without a loader, that it cannot tell. What ranks cost each
    other is looked at in any case.

    Args:
        checks: what is wrong with how the training is set up. Of it, only what is of high severity is told here.
        predictions: of the same facts; None: nothing is predicted.
    """
    enough, ranks = too_short.enough_steps(facts), recorded(facts)
    between = found(CROSS_RANK, ranks) if enough and ranks else []
    around, of_loop = (found(rules, facts) if enough else [] for rules in (MACHINE, LOOP))
    loader_elsewhere = any(finding.blame is not None and finding.blame.phase == "wait" for finding in between)
    asked = any(finding.severity is not Severity.INFO for finding in (*of_loop, *between))
    pointless = _NOT_HELD if loader_elsewhere else (compute_bound.RULE_ID,) if asked else ()  # what holds the run back is known
    own = [finding for finding in _of_input(facts, bool(around)) if finding.rule_id not in pointless]
    own = [_with_idle_workers(finding, facts) for finding in own]
    between = [_of_its_loader(finding, own) for finding in between]
    wrong = _wrong(checks)
    grave = [finding for finding in wrong if finding.rule_id in GRAVE]
    others = [*map(_estimated, (*around, *own, *of_loop, *between)), *(finding for finding in wrong if finding not in grave)]
    if predictions is not None:
        grave, others = predictions.attached(grave), predictions.attached(others)
    return _told(grave + rank(others, before(facts), facts.step.mean_s))


def _with_idle_workers(finding: Finding, facts: RuleInputs) -> Finding:
    """The finding, whose evidence begins with the workers that never made a batch: figures of workers are those of the others."""
    if not facts.idle_workers or finding.severity is Severity.INFO:
        return finding
    never = Evidence("idle_workers", f"workers that never made a batch, of {num_workers(facts)}", facts.idle_workers, "workers")
    return replace(finding, evidence=[never, *finding.evidence])


def _of_its_loader(finding: Finding, own: Sequence[Finding]) -> Finding:
    """The finding about the late rank, which is the one that is shown: with what holds its loader back."""
    top = next((one for one in rank(list(own)) if one.severity is not Severity.INFO), None)
    if top is None or finding.rule_id != late_rank.RULE_ID or finding.blame is None or finding.blame.phase != "wait":
        return finding
    if _COMMENT in top.fix:  # a line of code, which nothing can follow
        return replace(finding, fix=f"{finding.fix} Or: {top.fix}")
    return replace(finding, fix=f"{sentence(top.fix).removesuffix('.')}. Or give{finding.fix.removeprefix('Give')}")


def diagnose_traces(facts: TraceFacts) -> list[Finding]:
    """The same of traces."""
    ranked = [_estimated(one) for one in rank(refused_of_traces([*found(TRACE, facts), *found(CROSS_RANK, facts.ranks)], facts))]
    if not facts.shown.basis.steps:  # what a cause costs per step is unknown
        ranked = [replace(finding, cost_s=0.0, cost_kind=CostKind.UNKNOWN) for finding in ranked]
    return _told(ranked)


def found(rules: Sequence[Rule[F]], facts: F) -> list[Finding]:
    """What the rules find, in their order."""
    return [finding for rule in rules if (finding := rule.check(facts)) is not None]


def _estimated(finding: Finding) -> Finding:
    """The finding, whose cost is an estimate if its rule does not know better."""
    unsaid = finding.cost_s > 0 and finding.cost_kind is CostKind.UNKNOWN
    return replace(finding, cost_kind=CostKind.ESTIMATED) if unsaid else finding


def _told(ranked: list[Finding]) -> list[Finding]:
    asking = [finding for finding in ranked if finding.severity is not Severity.INFO]
    most = [finding for finding in asking if finding.rule_id not in _BESIDE][:MOST]
    told = [finding for finding in asking if finding in most or finding.rule_id in _BESIDE]
    return told + [finding for finding in ranked if finding.severity is Severity.INFO]


def _wrong(checks: Sequence[Finding]) -> list[Finding]:
    high = [finding for finding in checks if finding.severity is Severity.HIGH]
    same = any(finding.rule_id == "same_data" for finding in high)  # whose fix is the same
    return [finding for finding in high if not (same and finding.rule_id == "whole_data_on_every_rank")]


def _of_input(facts: RuleInputs, explained: bool) -> list[Finding]:
    if unknown := untold(facts):
        return [unknown]
    if facts.loader is None or facts.loader_elsewhere:
        return [_without_a_loader(facts)]
    if near := borderline_input.check(facts):
        return [near]
    if steady_share(facts) < MIN_WAIT_SHARE:
        return [finding for finding in [compute_bound.check(facts)] if finding]
    told = _without_contradictions(found(INPUT, facts))
    if not explained and all(finding.severity is Severity.INFO for finding in told):
        told.append(gpu_bound.check(facts) or input_bound_unexplained.check(facts))
    return told


def _without_a_loader(facts: RuleInputs) -> Finding:
    """What makes the batches where no loader does, if that is known."""
    if facts.loader is None and "input" in facts.step.stages:
        near = borderline_input.check(facts) if made_in_step.sure_of_the_rest(facts) else None
        held = near or made_in_step.check(facts)
        not_held = compute_bound.check(facts) if made_in_step.sure_of_the_rest(facts) else None
        return held or not_held or input_not_seen.check(facts)
    return (compute_bound.without_a_loader(facts) if facts.loader is None else None) or input_not_seen.check(facts)


def _without_contradictions(found: list[Finding]) -> list[Finding]:
    pointless: set[str] = set()
    for finding in found:
        others = [other for other in found if other.rule_id in BY_ID[finding.rule_id].instead_of.split()]
        explained = any(other.rule_id in _EXPLAINS_QUEUE and other.cost_s >= finding.cost_s / 2 for other in others)
        pointless |= {finding.rule_id} if explained else {other.rule_id for other in others}
    return [finding for finding in found if finding.rule_id not in pointless]


def before(facts: RuleInputs) -> dict[str, frozenset[str]]:
    """``BEFORE`` for these facts."""
    if not num_workers(facts):
        return BEFORE
    found = BEFORE | {rule_id: BEFORE.get(rule_id, frozenset()) | {"too_few_workers"} for rule_id in _EXPLAINS_SLOW_WORKERS}
    waits = input_wait(facts)
    if cpus.throttled(facts) or waits.making_s < waits.handover_s + waits.transport_s:  # cheaper samples are not what it waits for
        found |= {rule_id: found[rule_id] - {cpu_saturated.RULE_ID} for rule_id in _OF_SAMPLES}
    return found


def rank(findings: list[Finding], before: Mapping[str, frozenset[str]] = BEFORE, mean_s: float = 1.0) -> list[Finding]:
    """By severity, then by what the fix gives for its effort, or else at most.

    But what ``before`` names goes directly ahead of what should wait for it, if both are of one severity.

    Args:
        mean_s: of the step: predictions are rates, and costs seconds of it.
    """
    keys: dict[str, tuple[int, float, int, float]] = {}

    def key(finding: Finding) -> tuple[int, float, int, float]:
        if finding.rule_id not in keys:
            worth = _worth_s(finding, mean_s)
            own = (_ORDER.index(finding.severity), -worth, 0, -worth)
            later = [key(other) for other in findings if _goes_before(finding, other, before)]
            keys[finding.rule_id] = min([own, *((severity, most, place - 1, -worth) for severity, most, place, _ in later)])
        return keys[finding.rule_id]

    return sorted(findings, key=key)


def _worth_s(finding: Finding, mean_s: float) -> float:
    """Seconds per step that its fix is predicted to spare, for its effort; a bound of what it spares counts for less."""
    predicted = finding.predicted
    if predicted is None:
        return finding.cost_s / BOUND
    return mean_s * (1 - predicted.before / predicted.after) / BY_ID[finding.rule_id].effort.value


def _goes_before(first: Finding, second: Finding, before: Mapping[str, frozenset[str]]) -> bool:
    same = first.severity is second.severity
    return same and second.rule_id in before.get(first.rule_id, ()) and first.cost_s >= _MIN_PART * second.cost_s


def leading(findings: Sequence[Finding]) -> Finding | None:
    """The finding that the verdict tells; None without findings."""
    return next((finding for finding in findings if finding.rule_id not in _ASIDE), findings[0] if findings else None)


def verdict(findings: list[Finding], facts: RuleInputs) -> str:
    """One or two sentences, with figures, for those who read nothing else."""
    said = _verdict(findings, facts)
    return f"{nothing_trained.PREFIX}{said}" if nothing_trained.only_infers(facts) else said


def _verdict(findings: list[Finding], facts: RuleInputs) -> str:
    top = leading(findings)
    if top is None:
        return "What limits this run is unknown: no rule applies to it."
    if top.rule_id in _WRONG or top.rule_id in _ASIDE:
        return f"{_WRONG.get(top.rule_id, _WRONG_SET_UP)}: {top.message}."
    goes = "waits for data" if facts.loader is not None and num_workers(facts) != 0 else "goes to the input"
    waits = f"{share(steady_share(facts))}{too_short.unsure(facts)} of each {seconds(facts.step.mean_s)} step {goes}. "
    change = setting(facts, top.settings) if top.settings else ""
    if bound := _bound_by(top):
        called = bound if top.rule_id in _WHOLE else _partly(bound, _costs(top, facts.step.mean_s))
        return _sentences(top, facts.step.mean_s, called, change=change)
    by_cpus = top.rule_id == cpu_saturated.RULE_ID
    sure = "CPU-bound" if by_cpus else _partly(_SURE, Severity.of(steady_share(facts)))
    return _sentences(top, facts.step.mean_s, _PERHAPS if too_short.maybe_below(facts) and not by_cpus else sure, waits, change)


def _costs(finding: Finding, mean_s: float | None) -> Severity:
    """Of what it costs alone: a finding is also of low severity where the steps are too few to be sure."""
    return Severity.of(finding.cost_s / mean_s) if finding.cost_s > 0 and mean_s else finding.severity


def _partly(bound: str, weight: Severity) -> str:
    """``Partly input-bound``, where what binds the run takes less than a fifth of its step."""
    if weight is Severity.HIGH:
        return bound
    return f"Partly {bound if bound.startswith('GPU') else bound[0].lower() + bound[1:]}"


def verdict_of_traces(findings: list[Finding], facts: TraceFacts) -> str:
    """The same of traces."""
    computes = next((finding for finding in findings if finding.rule_id == device_bound.RULE_ID), None)
    if computes is not None and findings[0].severity is Severity.LOW:  # what else costs a little is not what binds it
        return (
            f"{sentence(computes.message)}. {sentence(findings[0].message)}.{saving(findings[0], mean_step_s(facts.budgets[facts.rank]))}"
        )
    if not findings:
        most = max(STEP_PARTS, key=facts.share)
        return f"No single cause takes 5 % or more of {facts.whole}; {share(facts.share(most))} of it is {most.replace('_', ' ')}."
    called = _bound_by(findings[0]) or _SURE
    if findings[0].rule_id == host_bound.RULE_ID and any(finding.rule_id == input_not_seen.RULE_ID for finding in findings):
        called = "Host-bound, or input-bound"
    bound = _partly(called, _costs(findings[0], mean_step_s(facts.budgets[facts.rank])))
    return _sentences(findings[0], mean_step_s(facts.budgets[facts.rank]), bound) + _unexplained(facts, findings[0])


def _sentences(top: Finding, mean_s: float, bound: str, waits: str = "", change: str = "") -> str:
    """What limits the training, by how much, what to change where that is a setting, and what can be saved.

    Args:
        bound: what the run is called.
        waits: a sentence about the input, where the finding does not say how much of the step it takes.
        change: of the loader's settings, as an instruction; empty: it names none.
    """
    if top.severity is Severity.INFO:
        return f"{sentence(top.message)}."
    said = f"{waits}{sentence(top.message)}" if waits else top.message
    return f"{bound}: {said}.{_gain(top, mean_s, change)}"


def _bound_by(finding: Finding) -> str:
    """What a verdict calls a run that it holds back; empty: input-bound."""
    return BY_ID[finding.rule_id].bound if finding.rule_id in BY_ID else ""


def _gain(top: Finding, mean_s: float | None, change: str) -> str:
    """What to change where that is a setting, and what it gives."""
    rule = BY_ID.get(top.rule_id)
    if rule is None or not rule.by_settings or not change or (top.predicted is None and rule.effort is not Effort.SETTING):
        return saving(top, mean_s)
    return f" {change}.{saving(top, mean_s)}" if top.predicted is None else f" {change}: {rates(top.predicted)}."


def _unexplained(facts: TraceFacts, top: Finding) -> str:
    """A sentence where more than the first finding tells of is unknown."""
    part = facts.share("unexplained")
    told = next((one.value for one in top.evidence if one.unit == SHARE), 0.0)
    if Severity.of(part) is Severity.INFO or part < told:
        return ""
    return f" {share(part)} of {facts.whole} is unexplained: the device was idle, and the trace does not show what the host did."
