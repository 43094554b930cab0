"""Probes, which each measure one ceiling, and their combined result."""

import platform
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from feedline.pipelines.names import PROBES
from feedline.pipelines.probes.probe_rounds import Subject, as_ceiling, error_reason
from feedline.profiler.ceilings import Ceiling, Ceilings
from feedline.profiler.proc import cpu_model
from feedline.profiler.samplers.cgroup import effective_cpus

#: Part -> seconds, of the usual plan and of the quick one: measured on two CPUs, with 100 photographs
#: and a small model.
_USUAL_S = {
    "read": (160.0, 14.0),
    "decode": (12.0, 2.5),
    "augment": (23.0, 4.0),
    "transport": (43.0, 7.0),
    "copy": (2.0, 0.5),
    "compute": (16.0, 5.0),
    "sweep": (11.0, 3.0),
    "all_reduce": (5.0, 1.0),
}
_OF_DATA, _OF_MODEL = ("decode", "augment", "transport"), ("sweep",)
_NOTHING_S = 0.1  # a part that lacks what it measures


def expected_s(part: str, data: bool, model: bool, quick: bool) -> float:
    """Return about how long a probe takes on a machine with few CPUs. Unit: s.

    Args:
        part: what is probed.
        data: whether there are images.
        model: whether there is a model.
        quick: whether the plan is the quick one.
    """
    if (part in _OF_DATA and not data) or (part in _OF_MODEL and not model):
        return _NOTHING_S
    return _USUAL_S[part][quick]


def run_probe(
    subject: Subject, part: str, tell: Callable[[str], object] = lambda _: None
) -> list[Ceiling]:
    """Run one probe.

    One that fails is a row with the reason; the global random generators are restored.

    Args:
        subject: what is probed.
        part: the probe.
        tell: called with the name of each ceiling once it is measured.
    """
    from feedline.pipelines.random_states import OwnRandomState

    ceilings: list[Ceiling] = []
    try:
        with OwnRandomState(0):
            probe: Callable[[Subject], Iterator[Ceiling]] = import_module(
                f"feedline.pipelines.probes.{PROBES[part]}"
            ).probe
            for ceiling in probe(subject):
                ceilings.append(ceiling)
                tell(ceiling.name)
    except Exception as error:
        ceilings.append(as_ceiling(part, error_reason(error)))
    return ceilings


def all_ceilings(subject: Subject, ceilings: list[Ceiling], notes: list[str]) -> Ceilings:
    """Combine ceilings with facts about the model and the machine."""
    model = next((ceiling.settings for ceiling in ceilings if ceiling.name == "compute/model"), {})
    return Ceilings(
        ceilings,
        machine=_machine_facts(),
        flop_per_sample=_number(model.get("flop_per_sample")),
        peak_flops=_number(model.get("peak_flops")) or _fastest(ceilings),
        sample_bytes=subject.photos.mean_bytes if subject.photos else None,
        cores=effective_cpus(),
        notes=notes,
    )


def _machine_facts() -> dict[str, object]:
    """Return facts about the machine that the figures depend on."""
    import torch

    gpus = (
        [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
        if torch.cuda.is_available()
        else []
    )
    return {
        "cpu": cpu_model() or platform.machine(),
        "gpus": gpus,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def _fastest(ceilings: list[Ceiling]) -> float | None:
    """Return the peak for float32, the maker's before the measured one."""
    for name in ("compute/specified float32", "compute/matmul float32"):
        for ceiling in ceilings:
            if ceiling.name == name and ceiling.value:
                return ceiling.high or ceiling.value
    return None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None
