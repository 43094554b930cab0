"""From facts to findings: the gate, the rules, and the order in which a person should act on them."""

from collections.abc import Mapping, Sequence

from feedline.analysis.convergence.checks import GRAVE
from feedline.analysis.facts import Facts
from feedline.analysis.finding import Evidence, Finding, Severity, saving
from feedline.analysis.quantities import seconds, sentence, share
from feedline.analysis.rules import (
    BETWEEN_RANKS,
    OF_MACHINE,
    RULES,
    Rule,
    busy_neighbors,
    compute_bound,
    epoch_restart,
    exposed_communication,
    fewer_workers,
    input_bound_unexplained,
    late_rank,
    made_in_step,
    nothing_trained,
    too_few_workers,
    too_short,
)
from feedline.analysis.rules.handover import as_code
from feedline.analysis.rules.held import MIN_WAIT_SHARE, num_workers, steady_share

MOST = 3  # findings that ask for a change: more is a list, not advice

#: cause -> causes whose fix should wait for it, because it is more specific (it says *what* takes the CPU) or costs one setting.
BEFORE: dict[str, frozenset[str]] = {
    "slow_for_its_bytes": frozenset(
        {
            "busy_neighbors",
            "too_few_workers",
            "fewer_workers",
            "made_one_by_one",
            "epoch_restart",
            "custom_collate",
            "small_files",
            "cold_storage",
            "blocked",
            "thread_oversubscription",
            "oversize_images",
            "float32_on_host",
            "cpu_saturated",
        }
    ),
    "busy_neighbors": frozenset(
        {
            "too_few_workers",
            "fewer_workers",
            "made_one_by_one",
            "made_in_step",
            "epoch_restart",
            "small_files",
            "cold_storage",
            "swapping",
            "thread_oversubscription",
            "oversize_images",
            "decode_bound",
            "float32_on_host",
            "augmentation_bound",
            "cpu_saturated",
        }
    ),
    "late_rank": frozenset(
        {
            "too_few_workers",
            "small_files",
            "cold_storage",
            "blocked",
            "oversize_images",
            "decode_bound",
            "float32_on_host",
            "augmentation_bound",
            "cpu_saturated",
        }
    ),
    "too_few_workers": frozenset({"oversize_images", "decode_bound", "float32_on_host", "augmentation_bound"}),
    "straggler_in_order": frozenset({"blocked"}),
    "fewer_workers": frozenset({"cpu_saturated"}),
    "made_one_by_one": frozenset({"cpu_saturated"}),
    "small_files": frozenset({"cold_storage"}),
    "objects_in_queue": frozenset({"cpu_saturated"}),
    "custom_collate": frozenset({"cpu_saturated"}),
    "thread_oversubscription": frozenset({"cpu_saturated"}),
    "oversize_images": frozenset({"decode_bound", "cpu_saturated"}),
    "decode_bound": frozenset({"cpu_saturated"}),
    "float32_on_host": frozenset({"augmentation_bound", "cpu_saturated"}),
    "augmentation_bound": frozenset({"cpu_saturated"}),
}

#: These say why workers cannot keep pace, and their fix names more workers where that helps. Without workers, ``too_few_workers`` goes
#: first: it gains more.
EXPLAINS_SLOW_WORKERS = ("blocked", "small_files", "cold_storage", "swapping")

#: cause -> causes that its fix makes pointless: without workers nothing goes through a queue, and none of them starts. What explains half
#: of its cost or more, and keeps the workers, is told in its place.
INSTEAD_OF: dict[str, frozenset[str]] = {
    "fewer_workers": frozenset({"too_few_workers", "epoch_restart", "objects_in_queue", "custom_collate", "straggler_in_order"}),
}

EXPLAINS_QUEUE = ("epoch_restart", "objects_in_queue", "custom_collate")

#: A specific finding goes first only if it can win this share of what the general one can; else it is a detail of it. In planted
#: trainings (tests/planted) decoding was half to three quarters of what full CPUs cost, as the machine was busy or not.
MIN_PART = 1 / 3

#: What a finding about the ranks together makes of the run.
BOUND_BY = {
    late_rank.CAUSE: "Bound by a late rank",
    late_rank.SPREAD: "Bound by late ranks",
    exposed_communication.SLOW: "Bound by the network",
    exposed_communication.CAUSE: "Bound by communication",
    busy_neighbors.CAUSE: "CPU contention",
}
#: Findings whose fix is nothing but settings of the loader: short enough for the verdict.
BY_SETTINGS = (too_few_workers.CAUSE, fewer_workers.CAUSE, epoch_restart.CAUSE)
#: What a finding about how the training is set up makes of it.
WRONG_SET_UP = "Misconfigured"
WRONG = {"not_finite": "Training diverged"} | dict.fromkeys(GRAVE - {"not_finite"}, WRONG_SET_UP)
#: Told among the findings, but no answer to what holds the run back: a run that is only measured ends before its schedule.
ASIDE = ("schedule_in_steps", "skipped_steps")

_ORDER = [Severity.HIGH, Severity.LOW, Severity.INFO]


def diagnose(facts: Facts, checks: Sequence[Finding] = ()) -> list[Finding]:
    """What holds the run back, most important first: at most three findings that are not info, then those that are.

    Says nothing of a run that trained nothing, or that is too short. Speaks of the input only if the step waits for it at least 5 % of its
    time (the loader's only start aside); otherwise says that it does not, or, without a loader, that it cannot tell. What ranks cost each
    other is looked at in any case.

    Args:
        checks: what is wrong with how the training is set up. Of it, only what is of high severity is told here.
    """
    between, around = ([finding for rule in rules if (finding := rule(facts))] for rules in _of_all(facts))
    loader_elsewhere = any(finding.blame is not None and finding.blame.phase == "wait" for finding in between)
    own = [finding for finding in _of_input(facts, bool(around)) if not (loader_elsewhere and finding.cause == compute_bound.CAUSE)]
    wrong = _wrong(checks)
    grave = [finding for finding in wrong if finding.cause in GRAVE]
    ranked = grave + rank([*around, *own, *between, *(finding for finding in wrong if finding not in grave)], before(facts))
    asking = [finding for finding in ranked if finding.severity is not Severity.INFO]
    return asking[:MOST] + [finding for finding in ranked if finding.severity is Severity.INFO]


def _of_all(facts: Facts) -> tuple[list[Rule], list[Rule]]:
    """Rules about the ranks together and about the machine, which need no loader."""
    return (BETWEEN_RANKS, OF_MACHINE) if too_short.enough_steps(facts) else ([], [])


def _wrong(checks: Sequence[Finding]) -> list[Finding]:
    high = [finding for finding in checks if finding.severity is Severity.HIGH]
    same = any(finding.cause == "same_data" for finding in high)  # whose fix is the same
    return [finding for finding in high if not (same and finding.cause == "whole_data_on_every_rank")]


def _of_input(facts: Facts, explained: bool) -> list[Finding]:
    if unknown := nothing_trained.check(facts) or too_short.check(facts):
        return [unknown]
    if facts.loader is None or facts.loader_elsewhere:
        return [_without_a_loader(facts)]
    if steady_share(facts) < MIN_WAIT_SHARE:
        return [finding for finding in [compute_bound.check(facts)] if finding]
    found = _without_contradictions([finding for rule in RULES if (finding := rule(facts))])
    if not explained and all(finding.severity is Severity.INFO for finding in found):
        found.append(input_bound_unexplained.check(facts))
    return found


def _without_contradictions(found: list[Finding]) -> list[Finding]:
    pointless: set[str] = set()
    for finding in found:
        others = [other for other in found if other.cause in INSTEAD_OF.get(finding.cause, ())]
        explained = any(other.cause in EXPLAINS_QUEUE and other.cost_s >= finding.cost_s / 2 for other in others)
        pointless |= {finding.cause} if explained else {other.cause for other in others}
    return [finding for finding in found if finding.cause not in pointless]


def before(facts: Facts) -> dict[str, frozenset[str]]:
    """``BEFORE`` for these facts."""
    if not num_workers(facts):
        return BEFORE
    return BEFORE | {cause: BEFORE.get(cause, frozenset()) | {"too_few_workers"} for cause in EXPLAINS_SLOW_WORKERS}


def rank(findings: list[Finding], before: Mapping[str, frozenset[str]] = BEFORE) -> list[Finding]:
    """By severity, then cost; but what ``before`` names goes directly ahead of what should wait for it, if both are of one severity."""
    keys: dict[str, tuple[int, float, int, float]] = {}

    def key(finding: Finding) -> tuple[int, float, int, float]:
        if finding.cause not in keys:
            own = (_ORDER.index(finding.severity), -finding.cost_s, 0, -finding.cost_s)
            later = [key(other) for other in findings if _goes_before(finding, other, before)]
            keys[finding.cause] = min([own, *((severity, cost, place - 1, -finding.cost_s) for severity, cost, place, _ in later)])
        return keys[finding.cause]

    return sorted(findings, key=key)


def _goes_before(first: Finding, second: Finding, before: Mapping[str, frozenset[str]]) -> bool:
    same = first.severity is second.severity
    return same and second.cause in before.get(first.cause, ()) and first.cost_s >= MIN_PART * second.cost_s


def leading(findings: Sequence[Finding]) -> Finding | None:
    """The finding that the verdict tells; None without findings."""
    return next((finding for finding in findings if finding.cause not in ASIDE), findings[0] if findings else None)


def verdict(findings: list[Finding], facts: Facts) -> str:
    """One or two sentences, with figures, for those who read nothing else."""
    said = _verdict(findings, facts)
    return f"{nothing_trained.PREFIX}{said}" if nothing_trained.only_infers(facts) else said


def _verdict(findings: list[Finding], facts: Facts) -> str:
    top = leading(findings)
    if top is None:
        return "What limits this run is unknown: no rule applies to it."
    if top.severity is Severity.INFO:
        return f"{sentence(top.says)}."
    if top.cause in WRONG or top.cause in ASIDE:
        return f"{WRONG.get(top.cause, WRONG_SET_UP)}: {top.says}."
    waits = f"{share(steady_share(facts))}{too_short.unsure(facts)} of each {seconds(facts.step.mean_s)} step waits for data. "
    if top.cause in BOUND_BY or top.cause == input_bound_unexplained.CAUSE:  # it says the share itself
        waits = ""
    said = f"{waits}{sentence(top.says)}" if waits else top.says
    change = f" Set {as_code(top.settings)}." if top.cause in BY_SETTINGS else ""
    return f"{BOUND_BY.get(top.cause, 'Input-bound')}: {said}.{change}{saving(top, facts.step.mean_s)}"


def _without_a_loader(facts: Facts) -> Finding:
    """What makes the batches where no loader does, if that is known."""
    if facts.loader is None and "input" in facts.step.stages:
        held = made_in_step.check(facts)
        not_held = compute_bound.check(facts) if made_in_step.sure_of_the_rest(facts) else None
        return held or not_held or _input_not_seen(facts)
    return _input_not_seen(facts)


def _input_not_seen(facts: Facts) -> Finding:
    """Without a loader that the steps ask themselves, nothing says which part of them the input is."""
    step = seconds(facts.step.mean_s)
    says = f"no loader was seen, so how much of the {step} step is input is unknown"
    disproof = "Check whether the program uses a DataLoader. If it does, its hook failed (see hooks) and this finding is wrong."
    if facts.making is not None:
        says, disproof = made_in_step.unsure(facts), made_in_step.DISPROOF
    elif facts.loader is not None:
        says = f"{facts.loader.kind} is iterated in a thread of its own, so how much of the {step} step is input is unknown"
        disproof = "Run with a plain DataLoader in its place: the report then shows how long the step waits for it."
    return Finding(
        "input_not_seen",
        Severity.INFO,
        says=says,
        evidence=[Evidence("other_s", "other per step", facts.step.stages.get("other", 0.0), "s")],
        fix="Put the code that gets a batch into a function that returns it (feedline finds it), or wrap it in feedline.stage('input').",
        disproof=disproof,
    )
