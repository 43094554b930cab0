"""The registry of rules: what each needs, in which order they are tried, and before which others a finding goes.

A rule is a file with the id of its cause, ``check(facts) -> Finding | None``, and ``change(facts)``: what its fix changes, from which the
gain is predicted. docs/rules.md says what each looks for and why its thresholds are so.
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from feedline.analysis.ledger.facts import RankFacts, RuleInputs
from feedline.analysis.ledger.finding import ROOF_KINDS, Finding
from feedline.analysis.ledger.trace_facts import TraceFacts
from feedline.analysis.predict.change import Change, Refused
from feedline.analysis.ranks.communication import Prediction
from feedline.analysis.rules import launches
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
    nothing_trained,
    objects_in_queue,
    oversize_images,
    page_faults,
    slow_for_its_bytes,
    slow_sampler,
    small_files,
    straggler_in_order,
    swapping,
    thread_oversubscription,
    too_few_workers,
    too_short,
)
from feedline.analysis.rules.loop import (
    checkpoint_time,
    evaluation_time,
    float32_products,
    gpu_waits,
    optimizer_time,
    own_code,
    recompilation,
)
from feedline.analysis.rules.trace import device_bound, exposed_copy, host_bound, input_stall, synchronisation

F = TypeVar("F")

#: Kinds of limits that the usual fix of an input finding lifts: it makes a sample cheaper.
CHEAPER = frozenset({"workers", "turns", "cores"})

#: Batches are made on more CPUs at once or wait for less: each takes as much CPU time as before.
AS_MUCH_CPU = frozenset({"workers", "turns"})

#: Of a fix whose cost no limit of the host changes: the sentence says it as well.
_EVERY_LIMIT = frozenset(ROOF_KINDS) - {"gpu"}


class Effort(enum.Enum):
    """What a fix asks for, as what it must give, against a setting, to be told first (docs/rules.md)."""

    SETTING = 1.0  # of the loader
    ENVIRONMENT = 1.25  # a variable, another program
    CODE = 1.5
    DATA = 2.0  # to be written in another form, or to another place
    HARDWARE = 3.0


@dataclass(frozen=True)
class Rule(Generic[F]):
    """A line of the registry.

    Attributes:
        rule_id: the id of its finding.
        check: returns the finding, or None.
        change: what the fix changes: in the loader, which is replayed, or in how ranks meet, which has been replayed. Or why that is
            not known.
        effort: of the fix.
        before: causes whose fix should wait for this one, because it is more specific (it says *what* takes the CPU) or costs one setting.
        bound: what a verdict calls a training that it holds back.
        by_settings: what is predicted are the settings that the finding names, and nothing else: short enough for the verdict.
        lifts: kinds of limits that its fix lifts. The GPU's work holds the copies to it.
        instead_of: causes that its fix makes pointless.
        supposing: what an estimate of its gain supposes.
    """

    rule_id: str
    check: Callable[[F], Finding | None]
    change: Callable[[F], Change | Prediction | Refused]
    effort: Effort = Effort.CODE
    before: str = ""
    bound: str = ""
    by_settings: bool = False
    lifts: frozenset[str] = CHEAPER
    instead_of: str = ""
    supposing: str = "without this cost"


#: Of a recorded run whose steps wait for their input. The order decides between findings that cost the same.
INPUT: list[Rule[RuleInputs]] = [
    # physics: does a stage do what it seems to do?
    Rule(
        slow_for_its_bytes.RULE_ID,
        slow_for_its_bytes.check,
        slow_for_its_bytes.change,
        before="busy_neighbors too_few_workers fewer_workers made_one_by_one epoch_restart custom_collate small_files cold_storage blocked "
        "thread_oversubscription oversize_images float32_on_host cpu_saturated",
        lifts=CHEAPER | {"step", "gpu"},
    ),
    # feasibility: is anything there to make batches beside the step?
    Rule(
        too_few_workers.RULE_ID,
        too_few_workers.check,
        too_few_workers.change,
        Effort.SETTING,
        before="oversize_images decode_bound float32_on_host augmentation_bound",
        by_settings=True,
        lifts=AS_MUCH_CPU,
    ),
    Rule(
        fewer_workers.RULE_ID,
        fewer_workers.check,
        fewer_workers.change,
        Effort.SETTING,
        before="cpu_saturated",
        by_settings=True,
        # the limit of the step holds receiving, copying and the main thread's own waits for a CPU, too
        lifts=AS_MUCH_CPU | {"step"},
        # without workers nothing goes through a queue, and none of them starts
        instead_of="too_few_workers epoch_restart objects_in_queue custom_collate straggler_in_order",
    ),
    Rule(made_one_by_one.RULE_ID, made_one_by_one.check, made_one_by_one.change, before="cpu_saturated"),
    # lifecycle
    Rule(epoch_restart.RULE_ID, epoch_restart.check, epoch_restart.change, Effort.SETTING, by_settings=True, lifts=CHEAPER | {"step"}),
    Rule(slow_sampler.RULE_ID, slow_sampler.check, slow_sampler.change, lifts=CHEAPER | {"step"}),
    # transport
    Rule(
        objects_in_queue.RULE_ID,
        objects_in_queue.check,
        objects_in_queue.change,
        before="cpu_saturated",
        lifts=CHEAPER | {"step", "ceiling"},
    ),
    Rule(
        custom_collate.RULE_ID,
        custom_collate.check,
        custom_collate.change,
        before="cpu_saturated",
        lifts=CHEAPER | {"step", "ceiling"},
    ),
    # blocked
    Rule(blocked.RULE_ID, blocked.check, blocked.change, before="busy_neighbors", by_settings=True, lifts=AS_MUCH_CPU),
    Rule(
        small_files.RULE_ID,
        small_files.check,
        small_files.change,
        Effort.DATA,
        before="cold_storage cpu_saturated",
        lifts=CHEAPER | {"ceiling"},
    ),
    Rule(cold_storage.RULE_ID, cold_storage.check, cold_storage.change, Effort.DATA, by_settings=True, lifts=AS_MUCH_CPU | {"ceiling"}),
    Rule(swapping.RULE_ID, swapping.check, swapping.change, Effort.HARDWARE, lifts=CHEAPER | {"step"}, instead_of="too_few_workers"),
    # CPU
    Rule(
        thread_oversubscription.RULE_ID,
        thread_oversubscription.check,
        thread_oversubscription.change,
        Effort.ENVIRONMENT,
        before="cpu_saturated",
        lifts=CHEAPER | {"step"},
    ),
    Rule(
        page_faults.RULE_ID,
        page_faults.check,
        page_faults.change,
        Effort.ENVIRONMENT,
        before="decode_bound augmentation_bound float32_on_host cpu_saturated",
    ),
    Rule(oversize_images.RULE_ID, oversize_images.check, oversize_images.change, Effort.DATA, before="decode_bound cpu_saturated"),
    Rule(decode_bound.RULE_ID, decode_bound.check, decode_bound.change, before="cpu_saturated", supposing="if decoding took no time"),
    Rule(
        float32_on_host.RULE_ID,
        float32_on_host.check,
        float32_on_host.change,
        before="augmentation_bound cpu_saturated",
        lifts=CHEAPER | {"step", "gpu", "ceiling"},
    ),
    Rule(
        augmentation_bound.RULE_ID,
        augmentation_bound.check,
        augmentation_bound.change,
        before="cpu_saturated",
        supposing="if augmentation took no time",
    ),
    Rule(
        cpu_saturated.RULE_ID,
        cpu_saturated.check,
        cpu_saturated.change,
        Effort.HARDWARE,
        lifts=CHEAPER | {"step"},
        supposing="if samples took no CPU time",
    ),
    # structure
    Rule(
        straggler_in_order.RULE_ID,
        straggler_in_order.check,
        straggler_in_order.change,
        Effort.SETTING,
        before="blocked",
        by_settings=True,
        lifts=AS_MUCH_CPU,
    ),
]

#: Of the machine that a recorded run shares, whatever the input does.
MACHINE: list[Rule[RuleInputs]] = [
    Rule(
        busy_neighbors.RULE_ID,
        busy_neighbors.check,
        busy_neighbors.change,
        Effort.ENVIRONMENT,
        before="too_few_workers fewer_workers made_one_by_one made_in_step epoch_restart small_files cold_storage swapping "
        "thread_oversubscription oversize_images decode_bound float32_on_host augmentation_bound cpu_saturated",
        bound="CPU contention",
        lifts=AS_MUCH_CPU | {"step"},
    ),
]

#: Of the training loop of a recorded run, whatever the input does.
LOOP: list[Rule[RuleInputs]] = [
    Rule(
        gpu_waits.RULE_ID,
        gpu_waits.check,
        launches.change,
        bound="Host-bound",
        lifts=frozenset({"step"}),
        supposing="if the GPU never waited",
    ),
    Rule(
        float32_products.RULE_ID,
        float32_products.check,
        float32_products.change,
        bound="GPU-bound",
        lifts=frozenset({"gpu", "step"}),
        supposing="if these products took no time",
    ),
    Rule(
        recompilation.RULE_ID,
        recompilation.check,
        recompilation.change,
        bound="Bound by compilation",
        lifts=frozenset({"step"}),
        supposing="if nothing were compiled after the first step",
    ),
    Rule(
        checkpoint_time.RULE_ID,
        checkpoint_time.check,
        checkpoint_time.change,
        bound="Bound by checkpoints",
        lifts=frozenset({"step"}),
        supposing="if saving took no time",
    ),
    Rule(
        optimizer_time.RULE_ID,
        optimizer_time.check,
        optimizer_time.change,
        bound="Bound by the optimizer",
        lifts=frozenset({"step"}),
        supposing="if it took no time",
    ),
    Rule(
        own_code.RULE_ID,
        own_code.check,
        own_code.change,
        bound="Bound by the training loop",
        lifts=frozenset({"step"}),
        supposing="if this code took no time",
    ),
    Rule(evaluation_time.RULE_ID, evaluation_time.check, evaluation_time.change, bound="Mostly inference", lifts=frozenset()),
]

#: What is said of a recorded run where no rule about its input speaks; diagnose.py says where which.
OTHERWISE: list[Rule[RuleInputs]] = [
    Rule(nothing_trained.RULE_ID, nothing_trained.check, nothing_trained.change),
    Rule(too_short.RULE_ID, too_short.check, too_short.change),
    Rule(made_in_step.RULE_ID, made_in_step.check, made_in_step.change),
    Rule(input_not_seen.RULE_ID, input_not_seen.check, input_not_seen.change),
    Rule(compute_bound.RULE_ID, compute_bound.check, compute_bound.change, lifts=_EVERY_LIMIT),
    Rule(borderline_input.RULE_ID, borderline_input.check, compute_bound.change, lifts=_EVERY_LIMIT),
    Rule(gpu_bound.RULE_ID, gpu_bound.check, compute_bound.change),
    Rule(input_bound_unexplained.RULE_ID, input_bound_unexplained.check, input_bound_unexplained.change, lifts=_EVERY_LIMIT),
]

#: Of ranks together, recorded or traced, whatever the input does.
CROSS_RANK: list[Rule[RankFacts]] = [
    Rule(
        late_rank.RULE_ID,
        late_rank.check,
        late_rank.change,
        before="too_few_workers small_files cold_storage blocked oversize_images decode_bound float32_on_host augmentation_bound "
        "cpu_saturated",
        bound="Bound by a late rank",
        lifts=frozenset({"step"}),
    ),
    Rule(late_rank.SPREAD, late_rank.changing, late_rank.no_changes, bound="Bound by late ranks", lifts=frozenset({"step"})),
    Rule(
        exposed_communication.SLOW,
        exposed_communication.slow,
        exposed_communication.faster,
        Effort.HARDWARE,
        bound="Bound by the network",
        lifts=frozenset({"step"}),
    ),
    Rule(
        exposed_communication.RULE_ID,
        exposed_communication.check,
        exposed_communication.change,
        bound="Bound by communication",
        lifts=frozenset({"step"}),
    ),
]

#: Of where the time of a traced device went.
TRACE: list[Rule[TraceFacts]] = [
    Rule(input_stall.RULE_ID, input_stall.check, input_stall.change),
    Rule(host_bound.RULE_ID, host_bound.check, launches.change, bound="Host-bound"),
    Rule(synchronisation.RULE_ID, synchronisation.check, synchronisation.change, bound="Bound by synchronization"),
    Rule(exposed_copy.RULE_ID, exposed_copy.check, exposed_copy.change, bound="Bound by copies"),
    Rule(device_bound.RULE_ID, device_bound.check, device_bound.change),
    Rule(input_not_seen.RULE_ID, input_not_seen.traced, input_not_seen.change),
]

RULES: tuple[Rule[Any], ...] = (*INPUT, *MACHINE, *LOOP, *CROSS_RANK, *TRACE)
#: The rule of a finding. Of the one that runs and traces have, that of runs.
BY_ID: dict[str, Rule[Any]] = {rule.rule_id: rule for rule in (*RULES, *OTHERWISE)}
