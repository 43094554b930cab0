"""Augmentation takes most of the CPU time of a sample."""

from feedline.analysis.facts import Facts
from feedline.analysis.finding import SHARE, Evidence, Finding, Severity
from feedline.analysis.model import Operation
from feedline.analysis.quantities import seconds, share
from feedline.analysis.rules.cpus import cost_share, cpu_share_of, making_s
from feedline.analysis.rules.held import making_share, severity

CAUSE = "augmentation_bound"

#: The same two as for decode (rules/decode_bound.py): most of the CPU, and the CPU is what the sample spends its time on.
MIN_CPU_SHARE = 0.50
MIN_WALL_SHARE = 0.25

NAMED = 3  # operations in the evidence: the rest is rarely worth a change


def check(facts: Facts) -> Finding | None:
    """Compare augmentation with the whole sample, and name the operations that take most."""
    of_cpu, of_wall = cpu_share_of(facts, "augment"), making_share(facts, "augment")
    if of_cpu < MIN_CPU_SHARE or of_wall < MIN_WALL_SHARE:
        return None
    cost_s = making_s(facts) * cost_share(facts, "augment")
    weight = severity(facts, cost_s)
    if weight is Severity.INFO:
        return None
    heaviest = _heaviest(facts)
    names = f", {heaviest[0].name} most of all" if heaviest else ""
    names += f" ({seconds(heaviest[0].cpu_s)} of CPU per sample)" if heaviest and heaviest[0].cpu_s else ""
    return Finding(
        CAUSE,
        weight,
        says=f"augmentation takes {share(of_cpu)} of the CPU time of a sample{names}",
        evidence=[
            Evidence("augment_share_of_cpu", "augmentation's share of the sample's CPU", of_cpu, SHARE),
            Evidence("augment_share", "augmentation's share of the sample's time", of_wall, SHARE),
            *(Evidence("operation_s", f"{op.name} per sample", op.wall_s, "s", op.name) for op in heaviest),
        ],
        fix="crop before the costly operations, use torchvision.transforms.v2 on uint8 tensors, or augment whole batches on the GPU",
        disproof="samples per second do not change when the operations named here are left out",
        cost_s=cost_s,
    )


def _heaviest(facts: Facts) -> list[Operation]:
    operations = facts.workers.operations if facts.workers else []
    return sorted((op for op in operations if op.stage == "augment"), key=lambda op: -op.wall_s)[:NAMED]
