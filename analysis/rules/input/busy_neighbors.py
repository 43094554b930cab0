"""Other programs hold the CPUs that the training waits for, or that workers would make batches on."""

import math
from dataclasses import replace

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import (
    SHARE,
    Change,
    CostKind,
    Evidence,
    Finding,
    Severity,
    measured,
)
from feedline.analysis.ledger.rule import AS_MUCH_CPU, Effort, Needs, Rule
from feedline.analysis.ledger.view import cpus, loader_call
from feedline.analysis.ledger.view.input_wait import MIN_WAIT_SHARE, input_wait, num_workers
from feedline.analysis.ledger.view.loader_call import arguments, as_code
from feedline.analysis.ledger.view.workers_needed import gained_s, needed, useless
from feedline.analysis.measure.model import MIN_OTHERS, Cpus
from feedline.analysis.measure.stages import MAKING_STAGES
from feedline.analysis.text.sentences import CPUS, NUMBER, PERCENT, Sentence

_RULE_ID = "busy_neighbors"
_NO_ROOM = "they hold CPUs that more loader workers would use"

#: CPUs that other programs hold at least where they keep workers from theirs: half of what one of
#: them would use.
_OF_A_WORKER = 0.5
#: Of its time with a CPU of its own that a worker computes at least where other programs keep it
#: from a CPU: one that mostly sleeps gets a CPU when it wakes up.
_COMPUTES = 0.25

_SAYS = Sentence(
    "other programs use {others} of the {cpus} CPUs that this training may run on",
    others=NUMBER,
    cpus=CPUS,
)
_WAITS = Sentence(
    "at least {part} of each step is spent waiting for CPUs that other programs use", part=PERCENT
)
_THREADS_WAIT = "the threads of the training wait for those CPUs"
_STOP = (
    "Stop the other programs (`top` on the host shows them), or pin them to other CPUs with "
    "taskset or a cgroup."
)
_RECORD = "Then record again: those programs distort all other numbers here."
_THEN = "Stop the other programs, then set {settings}."
_WHICH = [
    "`top` on the host shows these programs.",
    "Or pin them to other CPUs with taskset or a cgroup.",
]


def _check(facts: RuleInputs) -> Finding | None:
    """Compare the CPUs that other programs hold with those that the training lacks.

    Those that workers would need count as well.
    """
    use, mean_s = facts.cpus, facts.step.mean_s
    if use is None or use.own is None or not use.others or use.others < MIN_OTHERS or mean_s <= 0:
        return None
    waits_s = _waiting_s(facts)
    queues_s, kept_s = waits_s * cpus.by_others(facts), _kept_from_workers_s(facts)
    weight, (queues, kept) = (
        Severity.of(max(queues_s, kept_s) / mean_s),
        (part >= MIN_WAIT_SHARE * mean_s for part in (queues_s, kept_s)),
    )
    if weight is Severity.INFO:
        return None
    uses = _SAYS(others=use.others, cpus=use.affinity or use.allowed)
    held_s = queues_s if queues and kept_s <= queues_s else None
    if held_s is not None:
        message, *more = _WAITS(part=held_s / mean_s), uses
    else:  # what can be saved is the time of the other effect
        message, *more = uses, *([_THREADS_WAIT] if queues else [])
    advice = _advice(facts, kept_s)
    return Finding(
        _RULE_ID,
        weight,
        message=message,
        more=[*more, *([_NO_ROOM] if kept else [])],
        evidence=_evidence(facts, use, held_s, kept_s if kept else None),
        fix=_THEN.format(settings=as_code(advice, loader_call.place(facts))) if advice else _STOP,
        fix_more=[*_loader(facts, advice), *_WHICH] if advice else [_RECORD],
        condition=loader_call.only_if(facts, advice),
        how_to_check=_how_to_check(advice),
        cost_s=max(queues_s, kept_s),
        # the rest of the step may wait as well, but that is not measured
        cost_kind=CostKind.AT_LEAST if held_s is not None else CostKind.ESTIMATED,
        settings=advice,
    )


def _evidence(
    facts: RuleInputs, use: Cpus, held_s: float | None, kept_s: float | None
) -> list[Evidence]:
    """Return who uses the CPUs, and what that costs.

    Args:
        held_s: that samples wait for CPUs of other programs, per step; None: that is not told.
        kept_s: that more workers would save; None: too little.
    """
    return measured(
        [
            ("cpus_of_others", "CPUs used by other programs", use.others, "CPUs"),
            ("cpus_of_training", "CPUs used by this training", use.own, "CPUs"),
            ("cpus_allowed", "CPUs available to this training", use.allowed, "CPUs"),
            ("cpus_in_affinity", "CPUs in its affinity mask", use.affinity, "CPUs"),
            ("waiting_for_cpu_s", "waiting for a CPU per step", _waiting_s(facts), "s"),
            ("waiting_for_others_s", "of that, for CPUs that other programs hold", held_s, "s"),
            (
                "waiting_for_others_share",
                "the same, share of the step",
                held_s / facts.step.mean_s if held_s is not None else None,
                SHARE,
            ),
            (
                "kept_from_workers_s",
                "saved per step by more workers if those CPUs were free (estimated)",
                kept_s,
                "s",
            ),
            (
                "waiting_for_cpu_share",
                "waiting for a CPU, share of a sample's time",
                facts.runqueue_share,
                SHARE,
            ),
        ]
    )


def _change(facts: RuleInputs) -> Change:
    """Free the other programs' CPUs, and let the workers that the fix names use them."""
    return Change(settings=_advice(facts, _kept_from_workers_s(facts)), others=False)


def _advice(facts: RuleInputs, kept_s: float) -> dict[str, int | bool]:
    return arguments(
        facts,
        needed(_alone(facts), _most_workers(facts))
        if kept_s >= MIN_WAIT_SHARE * facts.step.mean_s
        else None,
    )


def _loader(facts: RuleInputs, advice: dict[str, int | bool]) -> list[str]:
    """Return the new line of the loader and where it is: no line causes what the finding is about."""
    where = loader_call.place(facts)
    return [
        loader_call.change(facts, advice),
        *([f"The loader is made at {where}."] if where else []),
    ]


def _waiting_s(facts: RuleInputs) -> float:
    """Return the seconds of the mean step in which it could have gone on with a CPU.

    They are its main thread's, and those of the workers that it waited for.
    """
    own = (facts.main_runqueue_share or 0.0) * facts.step.mean_s
    of_workers = (
        input_wait(facts).making_s * (facts.runqueue_share or 0.0) if num_workers(facts) else 0.0
    )
    return min(own + of_workers, facts.step.mean_s)


def _kept_from_workers_s(facts: RuleInputs) -> float:
    """Return the seconds per step that more workers would spare with the CPUs of other programs.

    Without those CPUs they do not. 0.0 where some workers never get a batch.
    """
    total = facts.costs.get("total")
    lacking = facts.idle_workers or useless(facts)
    if facts.cpus is None or (facts.cpus.others or 0.0) < _OF_A_WORKER or total is None or lacking:
        return 0.0
    computes_s = max(total.cpu_s or 0.0, facts.process_cpu_s or 0.0)
    if total.blocked_s is not None and computes_s < _COMPUTES * (computes_s + total.blocked_s):
        return 0.0
    now, then = gained_s(facts), gained_s(_alone(facts), _most_workers(facts))
    return max(0.0, then.low - now.low) if now is not None and then is not None else 0.0


def _most_workers(facts: RuleInputs) -> int:
    """Return one worker for each CPU.

    How long samples are blocked, which would carry more, was measured beside those programs.
    """
    return math.ceil(cpus.left_by_others(_alone(facts)))


def _alone(facts: RuleInputs) -> RuleInputs:
    """Return the run with the other programs' CPUs free.

    What the making of batches waited for them is gone.
    """
    use, workers, unqueued = facts.cpus, facts.workers, 1 - (facts.runqueue_share or 0.0)
    if use is None or use.own is None:
        return facts
    if workers is not None and workers.fetch_mean_s is not None:
        workers = replace(workers, fetch_mean_s=workers.fetch_mean_s * unqueued)
    relieved = replace(
        facts, workers=workers, cpus=replace(use, others=0.0, free=max(0.0, use.allowed - use.own))
    )
    return _making_sooner(relieved, unqueued) if num_workers(facts) == 0 else relieved


def _making_sooner(facts: RuleInputs, factor: float) -> RuleInputs:
    """Return the run in which the main process takes so much of the time for making batches."""
    step = facts.step
    stages = {
        name: s * (factor if name in MAKING_STAGES else 1.0) for name, s in step.stages.items()
    }
    spared_s = sum(step.stages.values()) - sum(stages.values())
    mean_s = step.mean_s - spared_s
    waits_s = facts.wait_share * step.mean_s - spared_s
    return replace(
        facts,
        step=replace(step, mean_s=mean_s, stages=stages),
        wait_share=max(0.0, waits_s) / mean_s if mean_s > 0 else 0.0,
    )


def _how_to_check(advice: dict[str, int | bool]) -> str:
    if not advice:
        return "Run without the other programs. If the step is no faster, this finding is wrong."
    settings = " and ".join(f"{name}={value}" for name, value in advice.items())
    return (
        f"Run twice with {settings}: with the other programs and without them. If the step is "
        f"no faster without, this finding is wrong."
    )


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    claims=("sample/*/run_queue",),
    effort=Effort.ENVIRONMENT,
    bound="CPU contention",
    lifts=AS_MUCH_CPU | {"step"},
    in_part=False,
    needs=Needs.OTHER_PROGRAMS,
    of_others=True,
    action="stop other programs",
)
