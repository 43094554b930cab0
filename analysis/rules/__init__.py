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
        cause: the id of its finding.
        check: returns the finding, or None.
        before: causes whose fix should wait for this one, because it is more specific (it says *what* takes the CPU) or costs one setting.
        bound: what a verdict calls a training that it holds back.
    """

    cause: str
    check: Callable[[F], Finding | None]
    before: str = ""
    bound: str = ""


#: Of a recorded run whose steps wait for their input. The order decides between findings that cost the same.
INPUT: list[Rule[RuleInputs]] = [
    # physics: does a stage do what it seems to do?
    Rule(
        slow_for_its_bytes.CAUSE,
        slow_for_its_bytes.check,
        before="busy_neighbors too_few_workers fewer_workers made_one_by_one epoch_restart custom_collate small_files cold_storage blocked "
        "thread_oversubscription oversize_images float32_on_host cpu_saturated",
    ),
    # feasibility: is anything there to make batches beside the step?
    Rule(too_few_workers.CAUSE, too_few_workers.check, before="oversize_images decode_bound float32_on_host augmentation_bound"),
    Rule(fewer_workers.CAUSE, fewer_workers.check, before="cpu_saturated"),
    Rule(made_one_by_one.CAUSE, made_one_by_one.check, before="cpu_saturated"),
    # lifecycle
    Rule(epoch_restart.CAUSE, epoch_restart.check),
    # transport
    Rule(objects_in_queue.CAUSE, objects_in_queue.check, before="cpu_saturated"),
    Rule(custom_collate.CAUSE, custom_collate.check, before="cpu_saturated"),
    # blocked
    Rule(blocked.CAUSE, blocked.check),
    Rule(small_files.CAUSE, small_files.check, before="cold_storage"),
    Rule(cold_storage.CAUSE, cold_storage.check),
    Rule(swapping.CAUSE, swapping.check),
    # CPU
    Rule(thread_oversubscription.CAUSE, thread_oversubscription.check, before="cpu_saturated"),
    Rule(oversize_images.CAUSE, oversize_images.check, before="decode_bound cpu_saturated"),
    Rule(decode_bound.CAUSE, decode_bound.check, before="cpu_saturated"),
    Rule(float32_on_host.CAUSE, float32_on_host.check, before="augmentation_bound cpu_saturated"),
    Rule(augmentation_bound.CAUSE, augmentation_bound.check, before="cpu_saturated"),
    Rule(cpu_saturated.CAUSE, cpu_saturated.check),
    # structure
    Rule(straggler_in_order.CAUSE, straggler_in_order.check, before="blocked"),
]

#: Of the machine that a recorded run shares, whatever the input does.
MACHINE: list[Rule[RuleInputs]] = [
    Rule(
        busy_neighbors.CAUSE,
        busy_neighbors.check,
        before="too_few_workers fewer_workers made_one_by_one made_in_step epoch_restart small_files cold_storage swapping "
        "thread_oversubscription oversize_images decode_bound float32_on_host augmentation_bound cpu_saturated",
        bound="CPU contention",
    ),
]

#: Of ranks together, recorded or traced, whatever the input does.
CROSS_RANK: list[Rule[RankFacts]] = [
    Rule(
        late_rank.CAUSE,
        late_rank.check,
        before="too_few_workers small_files cold_storage blocked oversize_images decode_bound float32_on_host augmentation_bound "
        "cpu_saturated",
        bound="Bound by a late rank",
    ),
    Rule(late_rank.SPREAD, late_rank.changing, bound="Bound by late ranks"),
    Rule(exposed_communication.SLOW, exposed_communication.slow, bound="Bound by the network"),
    Rule(exposed_communication.CAUSE, exposed_communication.check, bound="Bound by communication"),
]

#: Of where the time of a traced device went.
TRACE: list[Rule[TraceFacts]] = [
    Rule(input_stall.CAUSE, input_stall.check),
    Rule(host_bound.CAUSE, host_bound.check, bound="Host-bound"),
    Rule(synchronisation.CAUSE, synchronisation.check, bound="Bound by synchronization"),
    Rule(exposed_copy.CAUSE, exposed_copy.check, bound="Bound by copies"),
    Rule(device_bound.CAUSE, device_bound.check),
    Rule(input_not_seen.CAUSE, input_not_seen.traced),
]
