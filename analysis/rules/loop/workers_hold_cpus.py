"""Workers that make samples hold the CPUs that the step waits for, though batches are ready."""

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
from feedline.analysis.ledger.rule import CHEAPER, Rule
from feedline.analysis.ledger.view import cpus
from feedline.analysis.ledger.view.cheaper import less_cpu, one_thread, place_of_largest
from feedline.analysis.ledger.view.input_wait import input_wait, num_workers
from feedline.analysis.ledger.view.sample import MIN_PROCESS_RATIO, process_ratio, total
from feedline.analysis.ledger.view.slow_code import making_line
from feedline.analysis.text.sentences import PERCENT, Sentence

_RULE_ID = "workers_hold_cpus"

_SAYS = Sentence(
    "the main thread waits {part} of the step for a CPU, beside workers that make samples",
    part=PERCENT,
)


def _check(facts: RuleInputs) -> Finding | None:
    """Look for steps that wait longer for a CPU than for batches, while workers use the CPUs."""
    queues_s, making = _queues_s(facts), cpus.making_share_of_training(facts)
    if queues_s <= _held_s(facts) or not cpus.saturated(facts) or making is None:
        return None
    cost_s = min(queues_s, facts.step.mean_s * making)
    weight = Severity.of(cost_s / facts.step.mean_s)
    if weight is Severity.INFO or making < cpus.MIN_MAKING:
        return None
    unknown = facts.on_gpu and not facts.step.gpu_s  # what the GPU computes meanwhile
    helped = (process_ratio(facts) or 0.0) > MIN_PROCESS_RATIO
    fix, *more = [*(one_thread(facts) if helped else []), *less_cpu(facts)]
    return Finding(
        _RULE_ID,
        Severity.LOW if unknown else weight,
        message=_SAYS(part=facts.main_runqueue_share or 0.0),
        more=cpus.use(facts),
        evidence=_evidence(facts),
        fix=fix,
        fix_more=[*more, "Or get more CPUs."],
        place="" if helped else place_of_largest(facts) or making_line(facts),
        how_to_check="Train on one batch, again and again, without the loader. If its steps are no "
        "shorter, this finding is wrong.",
        cost_s=cost_s,
        cost_kind=CostKind.CAUSE_ONLY if unknown else CostKind.ESTIMATED,
    )


def _queues_s(facts: RuleInputs) -> float:
    """Return the seconds of the mean step in which its main thread waits for a CPU beside workers.

    0.0 without workers, where it rarely waits, and where a quota stops the training: its threads
    then wait for the quota. What the GPU computes meanwhile does not count.
    """
    share, step = facts.main_runqueue_share or 0.0, facts.step
    if not num_workers(facts) or share <= cpus.MAX_RUNQUEUE_SHARE or cpus.throttled(facts):
        return 0.0
    return min(share * step.mean_s, max(0.0, step.mean_s - step.gpu_s))


def _held_s(facts: RuleInputs) -> float:
    """Return the seconds of the mean step in which it waits for its input."""
    waits = input_wait(facts)
    return waits.making_s + waits.handover_s + waits.transport_s


def _evidence(facts: RuleInputs) -> list[Evidence]:
    cost = total(facts)
    return measured(
        [
            (
                "step_waiting_for_cpu_share",
                "the main thread waiting for a CPU, share of the step",
                facts.main_runqueue_share,
                SHARE,
            ),
            ("cpus_of_making", "CPUs used for making samples", cpus.making_cpus(facts), "CPUs"),
            ("cpus_of_training", "CPUs used by this training", cpus.own_cpus(facts), "CPUs"),
            (
                "cpus_of_others",
                "CPUs used by other programs",
                facts.cpus.others if facts.cpus else None,
                "CPUs",
            ),
            ("cpus_allowed", "CPUs available to this training", facts.effective_cpus, "CPUs"),
            (
                "sample_cpu_s",
                "CPU time per sample, of the thread that makes it",
                cost.cpu_s if cost else None,
                "s",
            ),
        ]
    )


def _change(facts: RuleInputs) -> Refused:
    """Refuse to predict: how much CPU time can be saved is unknown."""
    return Refused("unknown_cpu_time", "The CPU time per sample that can be saved is unknown.")


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    lifts=CHEAPER | {"step"},
    supposing="if samples took no CPU time",
    bound="CPU-bound",
    action="make samples cheaper",
)
