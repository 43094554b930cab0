"""The CPUs are full, or their quota is used up: samples queue, and more workers cannot help."""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import (
    SHARE,
    CostKind,
    Evidence,
    Finding,
    Refused,
    Severity,
    measured,
)
from feedline.analysis.ledger.rule import CHEAPER, Effort, Rule, Statement, Time
from feedline.analysis.ledger.view import cpus, sample
from feedline.analysis.ledger.view.cheaper import less_cpu, place_of_largest
from feedline.analysis.ledger.view.cpus import throttled
from feedline.analysis.ledger.view.input_wait import input_wait, num_workers, severity
from feedline.analysis.ledger.view.sample import MIN_PROCESS_RATIO, process_ratio
from feedline.analysis.ledger.view.slow_code import making_line
from feedline.analysis.text.sentences import CPUS, NUMBER, PART, PERCENT, Sentence

_RULE_ID = "cpu_saturated"
_QUOTA_ID = "quota_used_up"
_WEIGHTS = list(Severity)
_TWO = 2  # CPUs, of which one can be taken away
#: Of the CPUs: with less free on average they are called saturated. With more, samples queue in
#: bursts, and more workers may help.
_FULL = 0.1

_QUEUED = Sentence("{part} of the time per sample is spent waiting for a CPU", part=PERCENT)
_SATURATED = Sentence(
    "the CPUs are saturated: {part} of the time per sample is spent waiting for one", part=PERCENT
)
_USED_UP = Sentence(
    "the CPU quota is {cpus} CPUs, and samples spend {part} of their time waiting for a CPU",
    cpus=CPUS,
    part=PERCENT,
)
_IN_USE = Sentence(
    "the CPUs are nearly all in use: this training uses {used} of {cpus} on average",
    used=NUMBER,
    cpus=PART,
)
_QUOTA = Sentence(
    "Raise the CPU quota of the container or control group (now {cpus} CPUs).", cpus=CPUS
)
_LOOK = "Check with `top` on the host whether other programs use the CPUs."
_IF_NONE = "If none does, get more CPUs, or make samples cheaper."
_MORE_CPUS = "Or get more CPUs."


def _check(facts: RuleInputs) -> Finding | None:
    """Look for samples that wait for a CPU, or CPUs in use nearly all the time.

    view/cpus.py has the thresholds.
    """
    return None if cpus.throttled(facts) else _saturated(facts, _RULE_ID)


def _check_quota(facts: RuleInputs) -> Finding | None:
    """Look for the same where the quota of the control group stops the training."""
    return _saturated(facts, _QUOTA_ID) if cpus.throttled(facts) else None


def _saturated(facts: RuleInputs, rule_id: str) -> Finding | None:
    waits = input_wait(facts)
    # handing over a batch takes a turn of the worker as well
    waits_s = waits.making_s + waits.handover_s + waits.transport_s
    making = cpus.making_share_of_training(facts)
    cost_s = min(waits_s, facts.step.mean_s * (making or 0.0))
    quota_s = _beyond_quota_s(facts)
    weight = max(
        severity(facts, cost_s), Severity.of(quota_s / facts.step.mean_s), key=_WEIGHTS.index
    )
    if (
        severity(facts, waits_s) is Severity.INFO
        or weight is Severity.INFO
        or not cpus.saturated(facts)
    ):
        return None
    if (making is None or making < cpus.MIN_MAKING) and not cpus.throttled(facts):
        return None
    (message, more), (fix, *fix_more) = _says(facts), _fixes(facts)
    return Finding(
        rule_id,
        weight,
        message=message,
        more=more,
        evidence=_evidence(facts),
        fix=fix,
        fix_more=fix_more,
        place=(place_of_largest(facts) or making_line(facts)) if fix in less_cpu(facts) else "",
        how_to_check=_how_to_check(facts),
        cost_s=max(cost_s, quota_s),
        cost_kind=CostKind.BOUND if quota_s > cost_s else CostKind.ESTIMATED,
    )


def _helped(facts: RuleInputs) -> str:
    return (
        ", with helper threads"
        if (sample.process_ratio(facts) or 0.0) > sample.MIN_PROCESS_RATIO
        else ""
    )


def _of_mask(facts: RuleInputs) -> float | None:
    """Return how many CPUs a larger quota could give; None without a quota that stops it."""
    return facts.cpus.affinity if facts.cpus is not None and cpus.throttled(facts) else None


def _some_free(facts: RuleInputs) -> bool:
    """Tell whether CPUs are free on average, more than a trace of them."""
    return (
        facts.cpus is not None
        and facts.cpus.free is not None
        and facts.cpus.free >= _FULL * facts.cpus.allowed
    )


def _fixes(facts: RuleInputs) -> list[str]:
    """Return what to do first, and the alternatives."""
    if cpus.throttled(facts):
        return [_QUOTA(cpus=facts.effective_cpus), *less_cpu(facts)]
    if facts.cpus and facts.cpus.others is not None:
        return [*less_cpu(facts), _MORE_CPUS]
    return [_LOOK, _IF_NONE, *less_cpu(facts)]


def _how_to_check(facts: RuleInputs) -> str:
    """Return an experiment with the CPUs themselves; with one of them, with one more worker."""
    workers = num_workers(facts)
    if cpus.throttled(facts):
        return (
            "Raise the quota for a minute of training. If samples/s stay the same, this "
            "finding is wrong."
        )
    if facts.effective_cpus < _TWO and facts.several_loaders:
        return "Give one of the loaders a worker more. If samples/s rise, this finding is wrong."
    if facts.effective_cpus < _TWO and workers is not None:
        return f"Run with num_workers={workers + 1}. If samples/s rise, this finding is wrong."
    return "Run on one CPU fewer (taskset). If samples/s stay the same, this finding is wrong."


def _says(facts: RuleInputs) -> tuple[str, list[str]]:
    """Return the message, and more on what uses the CPUs."""
    queued, used = facts.runqueue_share, cpus.own_cpus(facts)
    if queued is not None and queued > cpus.MAX_RUNQUEUE_SHARE:
        says = _QUEUED if _some_free(facts) else _SATURATED
        if cpus.throttled(facts):
            return _USED_UP(part=queued, cpus=facts.effective_cpus), cpus.use(facts)
        return says(part=queued), cpus.use(facts)
    return _IN_USE(used=used, cpus=cpus.may_use(facts)), []


def _evidence(facts: RuleInputs) -> list[Evidence]:
    total = sample.total(facts)
    found = [
        (
            "waiting_for_cpu_share",
            "waiting for a CPU, share of a sample's time",
            facts.runqueue_share,
            SHARE,
        ),
        ("cpus_of_training", "CPUs used by this training", cpus.own_cpus(facts), "CPUs"),
        (
            "cpus_of_others",
            "CPUs used by other programs",
            facts.cpus.others if facts.cpus else None,
            "CPUs",
        ),
        (
            "cpus_of_making",
            f"CPUs used for making samples{_helped(facts)}",
            cpus.making_cpus(facts),
            "CPUs",
        ),
        ("cpus_allowed", "CPUs available to this training", facts.effective_cpus, "CPUs"),
        ("cpus_of_mask", "CPUs of the machine that it could use", _of_mask(facts), "CPUs"),
        (
            "sample_cpu_s",
            "CPU time per sample, of the thread that makes it",
            total.cpu_s if total else None,
            "s",
        ),
    ]
    return measured(found)


def _change(facts: RuleInputs) -> Refused:
    """Refuse to predict: how much CPU time can be saved is unknown."""
    return Refused(
        "unknown_cpu_time",
        "The CPU time per sample that can be saved is unknown. `feedline whatif RUN --set "
        "cores=N` predicts the throughput on N CPUs.",
    )


_CLAIMS = ("sample/*/cpu", "sample/*/run_queue", "sample/transport")
_NO_MORE_WORKERS = "More workers would only wait for the same CPUs."


def _beyond_quota_s(facts: RuleInputs) -> float:
    """Return the seconds per step that more CPUs can spare at most.

    The step then takes what as many CPUs of the affinity mask as it has processes need for its CPU
    time, or all of them where there are helper threads. 0 without a quota that stops it.
    """
    use = facts.cpus
    if not throttled(facts) or use is None or not use.own or not use.affinity:
        return 0.0
    helped = (process_ratio(facts) or 1.0) > MIN_PROCESS_RATIO
    most = (
        use.affinity if helped else min(use.affinity, use.ranks * ((num_workers(facts) or 0) + 1))
    )
    return facts.step.mean_s * max(0.0, 1 - use.own / most)


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    claims=_CLAIMS,
    lifts=CHEAPER | {"step"},
    supposing="if samples took no CPU time",
    of_input=True,
    bound="CPU-bound",
    in_part=False,
    states=Statement.CPUS_FULL,
    without_gain_of_workers=_NO_MORE_WORKERS,
    action="make samples cheaper",
)

QUOTA_RULE: Rule[RuleInputs] = Rule(
    _QUOTA_ID,
    _check_quota,
    _change,
    effort=Effort.ENVIRONMENT,
    claims=(*_CLAIMS, "sample/*/user"),
    time=Time.IDLE,
    lifts=CHEAPER | {"step"},
    supposing="if samples took no CPU time",
    of_input=True,
    bound="CPU-bound",
    in_part=False,
    states=Statement.CPUS_FULL,
    without_gain_of_workers=_NO_MORE_WORKERS,
    action="raise the CPU quota",
)
