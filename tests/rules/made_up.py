"""Made-up facts of a training, healthy unless told otherwise.

All times are given in milliseconds.
"""

from dataclasses import replace
from typing import Any

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.measure.clues import SameSamples
from feedline.analysis.measure.model import (
    Cost,
    Cpus,
    Loader,
    Operation,
    Throughput,
    Traffic,
    Workers,
)
from feedline.analysis.measure.step_model import StepSeries, StepSummary

#: Four workers that deliver the same samples.
SAME = SameSamples(4, 4, 120, in_order=True)

MS = 1e-3
BATCH = 32
NO_SERIES = StepSeries([], [], [], [], [], {})
INPUT = (
    "epoch_start",
    "sampler",
    "read",
    "decode",
    "augment",
    "dataset",
    "collate",
    "wait",
    "transport",
)

#: (cpu, runqueue, blocked) of one sample: 4.8 ms, no stage with half of it, so four workers make a
#: batch of 32 every 38 ms.
SAMPLE = {
    "read": (0.3, 0, 0),
    "decode": (2.0, 0, 0),
    "augment": (1.5, 0, 0),
    "dataset": (0.5, 0, 0),
    "collate": (0.5, 0, 0),
}


def made_up_facts(
    *,
    stages: dict[str, float] | None = None,
    waits: dict[str, float] | None = None,
    sample: dict[str, tuple[float, float, float]] | None = None,
    operations: dict[str, float] | None = None,
    settings: dict[str, object] | None = None,
    loader: dict[str, Any] | None = None,
    maker: dict[str, Any] | None = None,
    traffic: Traffic | None = None,
    used_cpus: float | None = 3.0,
    others: float = 0.0,
    **facts: Any,
) -> RuleInputs:
    """Inputs of 200 steps of 100 ms without their wait, from four workers on eight CPUs; what is
    given takes the healthy values' place.

    Args:
        stages: stages of the step, ms; "wait" is the sum of ``waits``.
        waits: kinds of wait, ms.
        sample: stage -> (cpu, runqueue, blocked) of a sample, ms.
        operations: "stage/name" -> ms a sample.
        used_cpus, others: CPUs that the training and other programs use.
        settings, loader, maker, facts: fields of the loader's settings, Loader, Workers and
            RuleInputs.
    """
    kinds = {"starved": 0.5, "head_of_line": 0.0, "in_transit": 0.0, "first_batch": 0.0} | (
        waits or {}
    )
    parts = {
        "transport": 0.4,
        "copy": 1.0,
        "forward": 30.0,
        "backward": 60.0,
        "optimizer": 8.0,
        "other": 1.0,
    } | (stages or {})
    parts = {name: ms * MS for name, ms in {**parts, "wait": sum(kinds.values())}.items()}
    mean_s = sum(parts.values())
    allowed = facts.get("effective_cpus", 8.0)
    step = StepSummary(
        mean_s,
        mean_s,
        mean_s,
        parts,
        {name: ms * MS for name, ms in kinds.items()},
        "optimizer",
        0.0,
        NO_SERIES,
    )
    costs = per_sample(SAMPLE | (sample or {}))
    return RuleInputs(
        **{
            "throughput": Throughput(
                BATCH / mean_s, 1 / mean_s, 200 * BATCH, 200, 200, float(BATCH)
            ),
            "step": step,
            "loader": replace(
                LOADER, **{**(loader or {}), "settings": LOADER.settings | (settings or {})}
            ),
            "workers": replace(_workers(costs, operations or {}), **(maker or {})),
            "traffic": traffic or Traffic(110e3, 3.0, 0.0, 0.0),
            "wait_share": sum(parts.get(name, 0.0) for name in INPUT) / mean_s,
            "ready_share": 0.98,
            "effective_cpus": 8.0,
            "main_runqueue_share": 0.0,
            "process_cpu_s": None,
            "straggler_share": 0.0,
            "epochs": 1,
            **facts,
            "cpus": Cpus(
                allowed,
                None,
                allowed,
                used_cpus,
                others,
                None if used_cpus is None else max(0.0, allowed - used_cpus - others),
            ),
        }
    )


def waiting(ms: float = 60.0, **changes: Any) -> RuleInputs:
    """A training that waits so long a step for a batch, with everything else healthy: no rule
    explains it.
    """
    return made_up_facts(
        **{"ready_share": 0.3, **changes, "waits": {"starved": ms} | changes.get("waits", {})}
    )


def without_workers(**changes: Any) -> RuleInputs:
    """A training that makes its batches itself: 32 samples of 4.8 ms in each step."""
    making = {
        name: BATCH * sum(parts) for name, parts in (SAMPLE | changes.get("sample", {})).items()
    }
    changes = {"ready_share": None, "straggler_share": None, "used_cpus": 1.0, **changes}
    changes["settings"] = {"num_workers": 0} | changes.get("settings", {})
    changes["maker"] = {"processes": 0, "idle_share": None, "busy_share": None} | changes.get(
        "maker", {}
    )
    return made_up_facts(
        **{
            **changes,
            "stages": making | {"transport": 0.0} | changes.get("stages", {}),
            "waits": {"starved": 0.0},
        }
    )


def per_sample(parts: dict[str, tuple[float, float, float]]) -> dict[str, Cost]:
    """Costs of a sample and their total, from (cpu, runqueue, blocked) in ms.

    Transport is beside the total: another thread does it.
    """
    costs = {name: _cost(*ms) for name, ms in parts.items()}
    making = [ms for name, ms in parts.items() if name != "transport"]
    return costs | {"total": _cost(*(sum(column) for column in zip(*making)))}


def _cost(cpu: float, runqueue: float, blocked: float) -> Cost:
    return Cost((cpu + runqueue + blocked) * MS, cpu * MS, runqueue * MS, blocked * MS, None, None)


def _workers(costs: dict[str, Cost], operations: dict[str, float]) -> Workers:
    return Workers(
        processes=4,
        busy_share=0.4,
        idle_share=0.6,
        batches=200,
        samples=200 * BATCH,
        samples_in_detail=800,
        per_sample=costs,
        operations=[
            Operation(*name.split("/"), ms * MS, ms * MS, 1.0) for name, ms in operations.items()
        ],
        fetch_mean_s=costs["total"].wall_s * BATCH,
        fetch_cv=0.1,
        decoded_pixels=160_000,
        output_pixels=50_176,
        sample_wall_histogram=[],
    )


LOADER = Loader(
    name="loader 0",
    kind="DataLoader",
    settings={
        "num_workers": 4,
        "batch_size": BATCH,
        "prefetch_factor": 2,
        "in_order": True,
        "persistent_workers": False,
    },
    role="training",
    batches=200,
    samples=200 * BATCH,
    batch_bytes=BATCH * 3 * 224 * 224,
    flags=["shared"],
    pickle_bytes=600.0,
    first_batch_s=0.4,
)
