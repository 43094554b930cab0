"""The rules: one file each, ``check(facts) -> Finding | None``. docs/rules.md says what each looks for and why its thresholds are so."""

from collections.abc import Callable

from feedline.analysis.facts import Facts
from feedline.analysis.finding import Finding
from feedline.analysis.rules import (
    augmentation_bound,
    blocked,
    busy_neighbors,
    cold_storage,
    compute_bound,
    cpu_saturated,
    custom_collate,
    decode_bound,
    epoch_restart,
    exposed_communication,
    fewer_workers,
    float32_on_host,
    late_rank,
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

Rule = Callable[[Facts], Finding | None]

#: In the order in which they are tried; it decides between findings that cost the same.
RULES: list[Rule] = [
    # physics: does a stage do what it seems to do?
    slow_for_its_bytes.check,
    # feasibility: is anything there to make batches beside the step?
    too_few_workers.check,
    fewer_workers.check,
    made_one_by_one.check,
    # lifecycle
    epoch_restart.check,
    # transport
    objects_in_queue.check,
    custom_collate.check,
    # blocked
    blocked.check,
    small_files.check,
    cold_storage.check,
    swapping.check,
    # CPU
    thread_oversubscription.check,
    oversize_images.check,
    decode_bound.check,
    float32_on_host.check,
    augmentation_bound.check,
    cpu_saturated.check,
    # structure
    straggler_in_order.check,
    compute_bound.check,
]

#: Of the machine that the run shares; tried whatever the input does.
OF_MACHINE: list[Rule] = [busy_neighbors.check]

#: Of the ranks together; tried whatever the input does.
BETWEEN_RANKS: list[Rule] = [late_rank.check, exposed_communication.check]
