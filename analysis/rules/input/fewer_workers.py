"""Workers cost the step more than they spare it.

Making its batches takes the main process less time than receiving them.
"""

import math

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import Change, Evidence, Finding, Severity, measured
from feedline.analysis.ledger.rule import CHEAPER, Effort, Rule
from feedline.analysis.ledger.view import cpus, loader_call
from feedline.analysis.ledger.view.handover import (
    MAX_PICKLE_BYTES,
    alone_s,
    at_best_s,
    receiving_s,
    with_workers_s,
)
from feedline.analysis.ledger.view.input_wait import (
    MIN_WAIT_SHARE,
    RECEIVING,
    input_wait,
    making_s,
    num_workers,
    severity,
)
from feedline.analysis.ledger.view.workers_needed import needed
from feedline.analysis.text.sentences import TIME, Sentence

_RULE_ID = "fewer_workers"

_SAYS = Sentence(
    "workers cost more than they save: input takes {getting} to get, and {making} to make",
    getting=TIME,
    making=TIME,
)


def _check(facts: RuleInputs) -> Finding | None:
    """Compare the step as it is with one in which the main process makes the batches.

    It is silent where workers in order would be better still, and where other programs hold the
    CPUs.
    """
    workers, making, alone = num_workers(facts), making_s(facts), alone_s(facts)
    if not workers or making is None or alone is None or _crowded(facts):
        return None
    cost_s = facts.step.mean_s - input_wait(facts).start_s - alone
    weight = severity(facts, cost_s)
    if weight is Severity.INFO or cost_s < MIN_WAIT_SHARE * facts.step.mean_s:
        return None
    if _can_be_put_in_order(facts, workers) and _in_order_s(facts) <= alone:
        return None
    loading = input_wait(facts).total_s - input_wait(facts).start_s
    settings = _settings(facts)
    return Finding(
        _RULE_ID,
        weight,
        message=_SAYS(getting=loading, making=making),
        evidence=_evidence(facts, making),
        fix=loader_call.change(facts, settings),
        fix_more=loader_call.without_workers(facts, settings),
        place=loader_call.place(facts),
        condition=loader_call.only_if(facts, settings),
        how_to_check="Run with num_workers=0. If samples/s do not rise, this finding is wrong.",
        cost_s=cost_s,
        settings=settings,
    )


def _change(facts: RuleInputs) -> Change:
    """Let the main process make its batches itself."""
    return Change(settings=_settings(facts))


def _settings(facts: RuleInputs) -> dict[str, int | bool]:
    # torch refuses both together
    kept = {"persistent_workers": False} if facts.setting("persistent_workers") else {}
    return {"num_workers": 0, **kept}


def _can_be_put_in_order(facts: RuleInputs, workers: int) -> bool:
    """Tell whether workers could do better.

    They could with others beside them, without restarts, or by sending only descriptors of tensors.
    """
    gate_s = MIN_WAIT_SHARE * facts.step.mean_s
    sends_more = _sends_more(facts) and receiving_s(facts).low - at_best_s(facts).high >= gate_s
    more_help = (
        (needed(facts) or 0) > workers
        and input_wait(facts).making_s >= gate_s
        and not cpus.queueing(facts)
    )
    return more_help or sends_more or input_wait(facts).restart_s >= gate_s


def _sends_more(facts: RuleInputs) -> bool:
    """Tell whether batches are copied or pickled into the queue.

    Descriptors of tensors in shared memory could be sent instead.
    """
    loader = facts.loader
    if loader is None:
        return False
    pickled = (loader.pickle_bytes or 0.0) > MAX_PICKLE_BYTES
    return (
        pickled
        or not {"shared", "objects"} & set(loader.flags)
        and facts.setting("collate") != "default"
    )


def _in_order_s(facts: RuleInputs) -> float:
    """Return the step with as many workers as it needs, s.

    They neither restart nor send more than descriptors of tensors.
    """
    workers = max(num_workers(facts) or 1, needed(facts) or 1)
    step = with_workers_s(facts, workers, min(receiving_s(facts).high, at_best_s(facts).high))
    return math.inf if step is None else step


def _evidence(facts: RuleInputs, making: float) -> list[Evidence]:
    parts = input_wait(facts)
    found = [
        ("making_s", "making the batches of one step", making, "s"),
        (
            "starved_s",
            "wait for batches that busy workers make or cannot hand over, per step",
            parts.making_s,
            "s",
        ),
        ("transport_s", RECEIVING, parts.transport_s, "s"),
        ("restart_s", "worker restarts and first batches, per step", parts.restart_s or None, "s"),
        ("batch_tensors", "tensors per batch", facts.batch_tensors, "tensors"),
        ("batch_bytes", "bytes per batch", facts.loader.batch_bytes if facts.loader else None, "B"),
    ]
    return measured(found)


def _crowded(facts: RuleInputs) -> bool:
    """Tell whether other programs leave the training less than one CPU.

    Which number of workers is best is then up to the scheduler. Where that was not sampled, a main
    thread that waits for a CPU is a sign of it.
    """
    if facts.cpus is None or facts.cpus.others is None:
        return (facts.main_runqueue_share or 0.0) > cpus.MAX_RUNQUEUE_SHARE
    return facts.cpus.allowed - facts.cpus.others < 1


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    claims=("wait", "transport", "epoch_start"),
    effort=Effort.SETTING,
    by_settings=True,
    lifts=CHEAPER | {"step"},  # handing over takes CPU time, too
    of_input=True,
    action="use fewer workers",
)
