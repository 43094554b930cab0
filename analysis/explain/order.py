"""The order in which a person should act on findings, from what they claim of the ledger.

Gain per effort decides. A cause that is part of a larger one goes directly ahead of it if it
explains enough of it with no more effort, or if its time is not work but waiting. Findings whose
fixes contradict each other are not reported together. No rule asks whether another has reported.
"""

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from feedline.analysis.ledger.finding import CostKind, Finding, Severity
from feedline.analysis.ledger.rule import Effort, Rule, Statement, Time
from feedline.analysis.rules import BETWEEN_RANKS, BY_ID

#: A part goes first only if it can win this share of what the whole can; else it is a detail of it.
#: In planted trainings (tests/planted) decoding was half to three quarters of what full CPUs cost,
#: as the machine was busy or not.
_MIN_PART = 1 / 3
#: Of a claim's time: from here on it lies within another one.
_WITHIN = 0.8
#: Of a claim's time, in another claim of the same kind: from here on it is not added to that one.
_SAME_TIME = 0.2
#: What a fix gives at most counts half beside what is predicted: that can be relied on, and few
#: stages can be removed altogether.
_BOUND = 2.0
#: Of what a setting costs that makes other findings pointless: one of them that explains this much
#: is told in its place.
_EXPLAINS = 0.5

#: Times the throughput that the first fix gives: one that is predicted to give more comes first,
#: also where it is code and the first a setting.
_FAR_MORE = 2.0

_MAKING = "wait/starved"  # workers are busy with the batch
#: Busy with it too, if what they wait for holds Python's lock: page faults of memory maps do.
_HANDED_LATE = "wait/handover"

_GRAVEST = (Severity.HIGH, Severity.LOW, Severity.INFO)

Rows = Mapping[str, float]  # row of the ledger -> seconds


def claimed(finding: Finding, rows: Rows) -> dict[str, float]:
    """Return the rows that a finding claims, with their seconds."""
    rule = BY_ID.get(finding.rule_id)
    own = _matching(rows, finding.claims)
    return own if own or rule is None else _matching(rows, rule.claims)


def _matching(rows: Rows, patterns: Iterable[str]) -> dict[str, float]:
    return {
        where: s
        for where, s in rows.items()
        if any(fnmatchcase(where, p) or fnmatchcase(where, f"{p}/*") for p in patterns)
    }


def in_order(findings: Sequence[Finding], rows: Rows, mean_s: float) -> list[Finding]:
    """Return the findings by severity, then by gain for effort, each part ahead of its whole.

    First comes the best one of the kind of causes that claims most of the step, or what goes ahead
    of it.

    Args:
        mean_s: of the step: predictions are rates, and costs seconds of it.
    """
    claims = {finding.rule_id: claimed(finding, rows) for finding in findings}

    def key(finding: Finding) -> tuple[int, float, float, str]:
        return (
            _GRAVEST.index(finding.severity),
            -_worth_s(finding, mean_s),
            -sum(claims[finding.rule_id].values()),
            finding.rule_id,
        )

    ranked: list[Finding] = []
    for finding in sorted(findings, key=key):
        whole = next(
            (place for place, other in enumerate(ranked) if _goes_before(finding, other, claims)),
            len(ranked),
        )
        ranked.insert(whole, finding)
    lead = _lead(ranked, rows)
    if lead is None or any(
        _goes_before(first, lead, claims) for first in ranked[: ranked.index(lead)]
    ):
        return _own_first(_better_first(ranked, mean_s))
    return _own_first(_better_first(_led_by(lead, ranked), mean_s))


def _led_by(first: Finding, ranked: Sequence[Finding]) -> list[Finding]:
    return [first, *(finding for finding in ranked if finding is not first)]


def _better_first(ranked: list[Finding], mean_s: float) -> list[Finding]:
    """Return the findings, of which one that is predicted to give far more than the first leads."""
    first = ranked[0] if ranked else None
    if first is None or first.severity is not Severity.HIGH or not _is_bounded(first):
        return ranked
    better = [
        finding
        for finding in ranked[1:]
        if finding.severity is first.severity
        and finding.predicted is not None
        and not finding.settings
        and not _is_of_others(finding)
        and _times(finding, mean_s) >= _FAR_MORE * _times(first, mean_s)
    ]
    if not better:
        return ranked
    return _led_by(max(better, key=lambda finding: _times(finding, mean_s)), ranked)


def _is_bounded(first: Finding) -> bool:
    """Tell whether the first fix is known to give no more than its prediction or its cost.

    A call that is known to be slow is for nothing, and a rank that others wait for is not replayed.
    """
    if first.names_known_call or first.blame is not None or not first.cost_s:
        return False
    more = (CostKind.AT_LEAST, CostKind.OR_MORE)
    return first.predicted is not None or first.cost_kind not in more


def _times(finding: Finding, mean_s: float) -> float:
    """Return how many times as fast the training is with its fix, as predicted or at most."""
    if finding.predicted is not None:
        return finding.predicted.after / finding.predicted.before
    return mean_s / max(mean_s - finding.cost_s, 1e-3 * mean_s)


def _own_first(ranked: list[Finding]) -> list[Finding]:
    """Return the findings, of which no load of other programs comes before as grave a cause.

    That cause lies in the training itself, and explains enough.
    """
    first = ranked[0] if ranked else None
    if first is None or not _is_of_others(first):
        return ranked
    for own in ranked[1:]:
        if own.severity is not first.severity or own.severity is Severity.INFO:
            break
        if not _is_of_others(own) and own.cost_s >= _MIN_PART * first.cost_s:
            return _led_by(own, ranked)
    return ranked


def _is_of_others(finding: Finding) -> bool:
    """Tell whether it names the load of other programs."""
    return finding.rule_id in BY_ID and BY_ID[finding.rule_id].of_others


def _lead(ranked: Sequence[Finding], rows: Rows) -> Finding | None:
    """Return the best finding of the kind of causes that claims most of the step."""
    grave = [finding for finding in ranked if finding.severity is Severity.HIGH] or [*ranked]
    kind = _largest_bound(grave, rows)
    return next((finding for finding in grave if _bound_of(finding) == kind), None)


def _worth_s(finding: Finding, mean_s: float) -> float:
    """Return the seconds per step that its fix spares, for its effort; an estimate counts half.

    That of a call which is known to be slow counts whole: it is for nothing.
    """
    if finding.predicted is None:
        unsure = 1.0 if finding.names_known_call else _BOUND
        return finding.cost_s / unsure / _effort(finding)
    return mean_s * (1 - finding.predicted.before / finding.predicted.after) / _effort(finding)


def without_contradictions(findings: Sequence[Finding], rows: Rows) -> list[Finding]:
    """Return the findings whose fixes can be made together.

    Of two that set one argument differently, the one that costs more stays. A setting that takes
    away all the time that others claim makes them pointless, unless one of them explains half of
    it: then its fix keeps what the setting would remove.
    """
    claims = {finding.rule_id: claimed(finding, rows) for finding in findings}
    kept = sorted(findings, key=lambda finding: (-finding.cost_s, finding.rule_id))
    for setting in [finding for finding in kept if finding.settings]:
        for other in [finding for finding in kept if finding is not setting]:
            if setting not in kept:
                break
            if _differ(setting, other):
                kept.remove(min(setting, other, key=_cost))
            elif _is_setting(setting) and _takes_away(
                claims[setting.rule_id], claims[other.rule_id]
            ):
                explains = other.cost_s >= _EXPLAINS * setting.cost_s
                kept.remove(setting if explains else other)
    return [finding for finding in findings if finding in kept]


def findings_together(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings whose fixes are predicted together.

    They change the loader and have a prediction of their own, each gain once.
    """
    found = [
        finding
        for finding in findings
        if finding.predicted is not None
        and finding.severity is not Severity.INFO
        and finding.rule_id not in BETWEEN_RANKS
    ]
    return [finding for finding in found if not any(_ends_more(other, finding) for other in found)]


def _ends_more(one: Finding, other: Finding) -> bool:
    """Tell whether a fix ends the needless work that another ends, and more."""
    first, second = BY_ID.get(one.rule_id), BY_ID.get(other.rule_id)
    return bool(first and second and second.ends and second.ends < first.ends)


def _cost(finding: Finding) -> tuple[float, str]:
    return finding.cost_s, finding.rule_id


def _differ(finding: Finding, other: Finding) -> bool:
    """Tell whether two findings set one argument differently."""
    both = finding.settings.keys() & other.settings.keys()
    return any(finding.settings[name] != other.settings[name] for name in both)


def _is_setting(finding: Finding) -> bool:
    """Tell whether its fix is a setting and nothing else."""
    return finding.rule_id in BY_ID and BY_ID[finding.rule_id].effort is Effort.SETTING


def _largest_bound(findings: Iterable[Finding], rows: Rows) -> str:
    """Return what a verdict calls a run, by the kind of causes that claim most of it.

    Overlapping claims count once. Empty: input-bound.
    """
    of_kind: dict[str, float] = {}
    taken: dict[str, list[dict[str, float]]] = {}
    for finding in sorted(findings, key=lambda one: (-one.cost_s, one.rule_id)):
        kind, claim = _bound_of(finding), claimed(finding, rows)
        if (
            not any(_overlap(claim, other) >= _SAME_TIME for other in taken.get(kind, []))
            or not claim
        ):
            of_kind[kind] = of_kind.get(kind, 0.0) + finding.cost_s
            taken.setdefault(kind, []).append(claim)
    return max(of_kind, key=lambda kind: (of_kind[kind], kind), default="")


def _bound_of(finding: Finding) -> str:
    """Return what a verdict calls a run that a finding holds back; empty: input-bound."""
    rule = BY_ID.get(finding.rule_id)
    return "" if rule is None or rule.of_input else rule.bound


def _goes_before(first: Finding, second: Finding, claims: Mapping[str, Rows]) -> bool:
    """Tell whether the first says what of the second takes so long, and explains enough of it."""
    rule, whole_rule = BY_ID.get(first.rule_id), BY_ID.get(second.rule_id)
    if (
        rule is None
        or whole_rule is None
        or first is second
        or first.severity is not second.severity
    ):
        return False
    if first.cost_s < _MIN_PART * second.cost_s:
        return False
    # what holds back the loader of the rank that others wait for
    if first.blame is not None and first.blame.phase == "wait":
        return whole_rule.of_input
    if first.names_known_call and whole_rule.states is Statement.CPUS_FULL:
        return True  # it says what fills them
    time, whole_time = _time(first, rule), _time(second, whole_rule)
    if rule.effort.value > whole_rule.effort.value and time is Time.WORK:
        return False
    part, whole = claims[first.rule_id], claims[second.rule_id]
    if time is not whole_time and (lies_within(part, whole) or lies_within(whole, part)):
        return time > whole_time
    # workers that have nothing to do wait for no sample: cheaper ones would hide it, also if what
    # makes them dear is a call that is known to be slow
    times = rule.time, whole_rule.time
    if times == (Time.IDLE, Time.WORK) and _is_made_of(part, whole):
        return True
    if times == (Time.WORK, Time.IDLE) and _is_made_of(whole, part):
        return _is_part(part, whole)
    if whole_time is Time.IDLE and time is Time.WORK:
        return _is_part(part, whole)
    easier = rule.effort.value <= whole_rule.effort.value
    return _is_part(part, whole) or (easier or time is Time.IDLE) and _is_made_of(whole, part)


def _time(finding: Finding, rule: Rule[Any]) -> Time:
    """Return what the time of a finding is: that of a call that is known to be slow is for nothing.

    Settings would only hide it.
    """
    return Time.IDLE if finding.names_known_call else rule.time


def _effort(finding: Finding) -> float:
    """Return what its fix asks for; that of a mistake in the set-up is a line of code."""
    return (BY_ID[finding.rule_id].effort if finding.rule_id in BY_ID else Effort.CODE).value


def _is_part(part: Rows, whole: Rows) -> bool:
    """Tell whether one claim lies within another, which claims more."""
    return lies_within(part, whole) and sum(_of_tables(part, whole).values()) < sum(
        _of_tables(whole, part).values()
    )


def _takes_away(setting: Rows, claim: Rows) -> bool:
    """Tell whether a setting claims all that another finding claims, or nearly, and no less."""
    return lies_within(claim, setting) and sum(_of_tables(claim, setting).values()) <= sum(
        _of_tables(setting, claim).values()
    )


def lies_within(part: Rows, whole: Rows) -> bool:
    """Tell whether one claim lies within another, as far as they are of one table."""
    inside = _of_tables(part, whole)
    return bool(inside) and _overlap(inside, whole) >= _WITHIN


def _of_tables(claim: Rows, other: Rows) -> Rows:
    """Return the rows of the tables that another claim is of.

    Seconds of a sample are none of a step.
    """
    tables = {_of_sample(where) for where in other}
    return {where: s for where, s in claim.items() if _of_sample(where) in tables}


def _is_made_of(wait: Rows, samples: Rows) -> bool:
    """Tell whether one claim is the wait for batches that workers make.

    The other is what takes them so long.
    """
    late = _HANDED_LATE in wait and not any(_of_sample(where) for where in wait)
    return (_MAKING in wait or late) and any(_of_sample(where) for where in samples)


def _of_sample(where: str) -> bool:
    return where.startswith("sample/")


def _overlap(claim: Rows, other: Rows) -> float:
    """Return the share (0 to 1) of the first claim's time that the second claims as well."""
    return sum(s for where, s in claim.items() if where in other) / max(sum(claim.values()), 1e-12)
