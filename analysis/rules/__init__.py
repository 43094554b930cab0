"""The registry of rules: what each needs, in which order they are tried, and before which others a finding goes.

A rule is a file with the id of its cause and ``check(facts) -> Finding | None``. docs/rules.md says what each looks for and why its
thresholds are so.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from feedline.analysis.facts import RankFacts, RuleInputs
from feedline.analysis.finding import Finding
from feedline.analysis.rules.cross_rank import exposed_communication, late_rank
from feedline.analysis.rules.input import (
    augmentation_bound,
    blocked,
    busy_neighbors,
    cold_storage,
    cpu_saturated,
    custom_collate,
    decode_bound,
    epoch_restart,
    fewer_workers,
    float32_on_host,
    input_not_seen,
    made_one_by_one,
    objects_in_queue,
    oversize_images,
    slow_for_its_bytes,
    small_files,
    straggler_in_order,
    swapping,
    thread_oversubscription,
    too_few_workers,
)
from feedline.analysis.rules.trace import device_bound, exposed_copy, host_bound, input_stall, synchronisation
from feedline.analysis.traces.facts import TraceFacts

F = TypeVar("F")


@dataclass(frozen=True)
class Rule(Generic[F]):
    """A line of the registry.

    Attributes:
        rule_id: the id of its finding.
        check: returns the finding, or None.
        before: causes whose fix should wait for this one, because it is more specific (it says *what* takes the CPU) or costs one setting.
        bound: what a verdict calls a training that it holds back.
    """

    rule_id: str
    check: Callable[[F], Finding | None]
    before: str = ""
    bound: str = ""


#: Of a recorded run whose steps wait for their input. The order decides between findings that cost the same.
INPUT: list[Rule[RuleInputs]] = [
    # physics: does a stage do what it seems to do?
    Rule(
        slow_for_its_bytes.RULE_ID,
        slow_for_its_bytes.check,
        before="busy_neighbors too_few_workers fewer_workers made_one_by_one epoch_restart custom_collate small_files cold_storage blocked "
        "thread_oversubscription oversize_images float32_on_host cpu_saturated",
    ),
    # feasibility: is anything there to make batches beside the step?
    Rule(too_few_workers.RULE_ID, too_few_workers.check, before="oversize_images decode_bound float32_on_host augmentation_bound"),
    Rule(fewer_workers.RULE_ID, fewer_workers.check, before="cpu_saturated"),
    Rule(made_one_by_one.RULE_ID, made_one_by_one.check, before="cpu_saturated"),
    # lifecycle
    Rule(epoch_restart.RULE_ID, epoch_restart.check),
    # transport
    Rule(objects_in_queue.RULE_ID, objects_in_queue.check, before="cpu_saturated"),
    Rule(custom_collate.RULE_ID, custom_collate.check, before="cpu_saturated"),
    # blocked
    Rule(blocked.RULE_ID, blocked.check),
    Rule(small_files.RULE_ID, small_files.check, before="cold_storage cpu_saturated"),
    Rule(cold_storage.RULE_ID, cold_storage.check),
    Rule(swapping.RULE_ID, swapping.check),
    # CPU
    Rule(thread_oversubscription.RULE_ID, thread_oversubscription.check, before="cpu_saturated"),
    Rule(oversize_images.RULE_ID, oversize_images.check, before="decode_bound cpu_saturated"),
    Rule(decode_bound.RULE_ID, decode_bound.check, before="cpu_saturated"),
    Rule(float32_on_host.RULE_ID, float32_on_host.check, before="augmentation_bound cpu_saturated"),
    Rule(augmentation_bound.RULE_ID, augmentation_bound.check, before="cpu_saturated"),
    Rule(cpu_saturated.RULE_ID, cpu_saturated.check),
    # structure
    Rule(straggler_in_order.RULE_ID, straggler_in_order.check, before="blocked"),
]

#: Of the machine that a recorded run shares, whatever the input does.
MACHINE: list[Rule[RuleInputs]] = [
    Rule(
        busy_neighbors.RULE_ID,
        busy_neighbors.check,
        before="too_few_workers fewer_workers made_one_by_one made_in_step epoch_restart small_files cold_storage swapping "
        "thread_oversubscription oversize_images decode_bound float32_on_host augmentation_bound cpu_saturated",
        bound="CPU contention",
    ),
]

#: Of ranks together, recorded or traced, whatever the input does.
CROSS_RANK: list[Rule[RankFacts]] = [
    Rule(
        late_rank.RULE_ID,
        late_rank.check,
        before="too_few_workers small_files cold_storage blocked oversize_images decode_bound float32_on_host augmentation_bound "
        "cpu_saturated",
        bound="Bound by a late rank",
    ),
    Rule(late_rank.SPREAD, late_rank.changing, bound="Bound by late ranks"),
    Rule(exposed_communication.SLOW, exposed_communication.slow, bound="Bound by the network"),
    Rule(exposed_communication.RULE_ID, exposed_communication.check, bound="Bound by communication"),
]

#: Of where the time of a traced device went.
TRACE: list[Rule[TraceFacts]] = [
    Rule(input_stall.RULE_ID, input_stall.check),
    Rule(host_bound.RULE_ID, host_bound.check, bound="Host-bound"),
    Rule(synchronisation.RULE_ID, synchronisation.check, bound="Bound by synchronization"),
    Rule(exposed_copy.RULE_ID, exposed_copy.check, bound="Bound by copies"),
    Rule(device_bound.RULE_ID, device_bound.check),
    Rule(input_not_seen.RULE_ID, input_not_seen.traced),
]
