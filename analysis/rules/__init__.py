"""The registry of rules: every rule is a file with a ``RULE``.

docs/rules has a page for each: what it looks for, and why its thresholds are so.
"""

from collections.abc import Iterable
from typing import Any

from feedline.analysis.ledger.facts import RankFacts, RuleInputs
from feedline.analysis.ledger.finding import Finding
from feedline.analysis.ledger.rule import Rule, Statement
from feedline.analysis.ledger.trace_facts import TraceFacts
from feedline.analysis.rules.cross_rank import exposed_communication, late_rank
from feedline.analysis.rules.input import (
    augmentation_bound,
    blocked,
    borderline_input,
    busy_neighbors,
    cold_storage,
    compute_bound,
    cpu_saturated,
    custom_collate,
    decode_bound,
    epoch_restart,
    fewer_workers,
    float32_on_host,
    gpu_bound,
    input_bound_unexplained,
    input_not_seen,
    made_in_step,
    made_one_by_one,
    many_tensors,
    nothing_trained,
    objects_in_queue,
    oversize_images,
    oversize_reads,
    page_faults,
    same_samples,
    skipped_batches,
    slow_first_batch,
    slow_for_its_bytes,
    slow_sampler,
    small_files,
    straggler_in_order,
    swapping,
    thread_oversubscription,
    too_few_workers,
    too_short,
    user_code,
    workers_without_data,
)
from feedline.analysis.rules.loop import (
    anomaly_detection,
    call_in_model,
    chained_graphs,
    checkpoint_time,
    denormal_numbers,
    double_precision,
    dropped_graphs,
    evaluation_time,
    float32_products,
    garbage_collection,
    gpu_waits,
    kept_batches,
    killed_worker,
    loop_in_model,
    memory_growth,
    optimizer_time,
    own_code,
    padded_batches,
    periodic_stall,
    recompilation,
    recomputed_forward,
    unused_gradients,
    unused_parameters,
    workers_hold_cpus,
)
from feedline.analysis.rules.trace import (
    device_bound,
    exposed_copy,
    host_bound,
    input_stall,
    synchronisation,
)

#: Of a recorded run whose steps wait for their input.
INPUT: tuple[Rule[RuleInputs], ...] = (
    slow_for_its_bytes.RULE,
    too_few_workers.RULE,
    workers_without_data.RULE,
    fewer_workers.RULE,
    made_one_by_one.RULE,
    epoch_restart.RULE,
    slow_first_batch.RULE,
    slow_sampler.RULE,
    objects_in_queue.RULE,
    many_tensors.RULE,
    custom_collate.RULE,
    blocked.RULE,
    small_files.RULE,
    cold_storage.RULE,
    swapping.RULE,
    thread_oversubscription.RULE,
    skipped_batches.RULE,
    page_faults.RULE,
    oversize_images.RULE,
    oversize_reads.RULE,
    decode_bound.RULE,
    float32_on_host.RULE,
    augmentation_bound.RULE,
    cpu_saturated.RULE,
    cpu_saturated.QUOTA_RULE,
    straggler_in_order.RULE,
    user_code.RULE,
)

#: Of data that is not what the training was meant to see, however long its input takes.
DATA: tuple[Rule[RuleInputs], ...] = (same_samples.RULE,)

#: Of what ended a training, however few its steps were.
ENDED: tuple[Rule[RuleInputs], ...] = (killed_worker.RULE, kept_batches.RULE)

#: Of the machine that a recorded run shares, whatever the input does.
MACHINE: tuple[Rule[RuleInputs], ...] = (busy_neighbors.RULE,)

#: Of the training loop of a recorded run, whatever the input does.
LOOP: tuple[Rule[RuleInputs], ...] = (
    gpu_waits.RULE,
    float32_products.RULE,
    anomaly_detection.RULE,
    double_precision.RULE,
    chained_graphs.RULE,
    dropped_graphs.RULE,
    padded_batches.RULE,
    denormal_numbers.RULE,
    recompilation.RULE,
    recomputed_forward.RULE,
    unused_gradients.RULE,
    unused_parameters.RULE,
    call_in_model.RULE,
    loop_in_model.RULE,
    checkpoint_time.RULE,
    garbage_collection.RULE,
    optimizer_time.RULE,
    own_code.RULE,
    periodic_stall.RULE,
    evaluation_time.RULE,
    memory_growth.RULE,
    workers_hold_cpus.RULE,
)

#: What is said of a recorded run where no rule about its input speaks; explain/diagnose.py says
#: where which.
OTHERWISE: tuple[Rule[RuleInputs], ...] = (
    nothing_trained.RULE,
    too_short.RULE,
    made_in_step.RULE,
    input_not_seen.RULE,
    compute_bound.RULE,
    borderline_input.RULE,
    gpu_bound.RULE,
    input_bound_unexplained.RULE,
)

#: Of ranks together, recorded or traced, whatever the input does.
CROSS_RANK: tuple[Rule[RankFacts], ...] = (
    late_rank.RULE,
    late_rank.SPREAD_RULE,
    exposed_communication.SLOW_RULE,
    exposed_communication.RULE,
)

#: Of where the time of a traced device went.
TRACE: tuple[Rule[TraceFacts], ...] = (
    input_stall.RULE,
    host_bound.RULE,
    synchronisation.RULE,
    exposed_copy.RULE,
    device_bound.RULE,
    input_not_seen.TRACED_RULE,
)

RULES: tuple[Rule[Any], ...] = (*INPUT, *DATA, *ENDED, *MACHINE, *LOOP, *CROSS_RANK, *TRACE)
#: The rule of a finding. Of the one that runs and traces have, that of runs.
BY_ID: dict[str, Rule[Any]] = {rule.rule_id: rule for rule in (*RULES, *OTHERWISE)}
#: Findings about several ranks: their rules read other facts.
BETWEEN_RANKS = frozenset(rule.rule_id for rule in CROSS_RANK)


def is_applied_outside(finding: Finding) -> bool:
    """Tell whether ``feedline verify`` can make a finding's change, without the program's code."""
    rule = BY_ID.get(finding.rule_id)
    by_settings = rule is not None and rule.by_settings and bool(finding.settings)
    return by_settings or bool(finding.environment)


def is_set_up_mistake(finding: Finding) -> bool:
    """Tell whether a finding is about how the training is set up, or what data it gets.

    What is wrong then is what it learns, not how long it takes.
    """
    return finding.rule_id not in BY_ID or BY_ID[finding.rule_id] in DATA


def unknown_input(facts: RuleInputs) -> Finding | None:
    """Return the finding that nothing can be said of this run's input, let alone predicted.

    None: there is none.
    """
    return check_stating(Statement.UNKNOWN, OTHERWISE, facts)


def check_stating(
    statement: Statement, rules: Iterable[Rule[RuleInputs]], facts: RuleInputs
) -> Finding | None:
    """Return what the first of these rules that states this finds."""
    findings = (rule.check(facts) for rule in rules if rule.states is statement)
    return next((finding for finding in findings if finding is not None), None)


def first_stating(findings: Iterable[Finding], *statements: Statement) -> Finding | None:
    """Return the first finding that states one of these of the whole run."""
    return next(
        (
            finding
            for finding in findings
            if finding.rule_id in BY_ID and BY_ID[finding.rule_id].states in statements
        ),
        None,
    )
