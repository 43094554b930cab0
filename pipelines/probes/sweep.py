"""Throughput of the user's model by batch size: where it stops to increase, and a line a + b B."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from feedline.pipelines.probes.probe_rounds import (
    MeasuredRate,
    ProbePlan,
    Subject,
    as_ceiling,
    error_reason,
    measure_in_turns,
    run_round,
)
from feedline.pipelines.probes.training_step import Step, cached_batch, tells_full_memory
from feedline.profiler.ceilings import Ceiling
from feedline.profiler.samplers.cgroup import CgroupMemory
from feedline.profiler.samplers.machine import MachineMemory

_MAX_BATCH = 4096
_MIN_KNEE_SHARE = 0.95  # of the best throughput
_SATURATED = 1.03  # two doublings that bring less than this factor end the sweep
# a step that takes this many times ``plan.seconds``, and at least _SLOW_S, ends the sweep
_SLOW = 8.0
_SLOW_S = 0.5
# of what is available: a larger batch that would need more is not tried on a CPU
_MEMORY_SHARE = 0.5
_RESET_PEAK = b"5"  # proc_pid_clear_refs(5)
_NO_ROOM = "no memory is left for a training step"


@dataclass(frozen=True)
class _StepTimeFit:
    """The line t(B) = a + b B through the times of a step, weighted for equal relative errors.

    Attributes:
        a_s: what a step costs whatever the batch: launches, the optimizer.
        b_s: what a sample costs.
        a_error_s, b_error_s: one standard error.
        worst_share: the largest relative distance of a measured time from the line.
    """

    a_s: float
    b_s: float
    a_error_s: float
    b_error_s: float
    worst_share: float


def _knee(batches: Sequence[int], rates: Sequence[float]) -> int:
    """Return the smallest batch with at least 95 % of the best throughput.

    Args:
        batches: ascending.
        rates: samples/s of each.
    """
    return next(
        batch for batch, rate in zip(batches, rates) if rate >= _MIN_KNEE_SHARE * max(rates)
    )


def _fit_step_times(batches: Sequence[int], times_s: Sequence[float]) -> _StepTimeFit | None:
    """Fit a line by weighted least squares; None for fewer than three sizes.

    Bevington and Robinson, Data Reduction and Error Analysis, chapter 6.
    """
    if len(batches) < 3:
        return None
    times = np.asarray(times_s)
    design = np.stack([np.ones(len(batches)), np.asarray(batches, float)], axis=1)
    weighted = design / times[:, None]
    (a, b), *_ = np.linalg.lstsq(weighted, np.ones(len(batches)), rcond=None)
    distance = (design @ (a, b) - times) / times
    covariance = np.linalg.inv(weighted.T @ weighted) * (distance @ distance) / (len(batches) - 2)
    errors = np.sqrt(np.diag(covariance))
    return _StepTimeFit(
        float(a), float(b), float(errors[0]), float(errors[1]), float(np.abs(distance).max())
    )


def probe(subject: Subject) -> Iterator[Ceiling]:
    """Measure the best throughput over batch sizes 1, 2, 4, ...

    The sweep ends at a limit of memory, time or saturation, or at an error. ``settings``: batches,
    samples_per_s, low, high (lists), knee, stopped, and the fit of t(B) = a_s + b_s B with
    a_error_s, b_error_s, worst_share.
    """
    if subject.model is None:
        yield as_ceiling(
            "sweep/model", "no model was given: name it with --model module:name", per="device"
        )
        return
    batch, made_of = cached_batch(subject)
    try:
        step = Step.of(subject.model, batch[:2], subject.device)
        sizes, stopped = _reachable_batches(step, subject.plan)
        rates = measure_in_turns(
            {str(size): step.with_samples(size).works()["model"] for size in sizes}, subject.plan
        )
    except Exception as error:
        yield as_ceiling("sweep/model", error_reason(error), per="device")
        return
    measured = {int(size): rate for size, rate in rates.items() if isinstance(rate, MeasuredRate)}
    if not measured:
        yield as_ceiling("sweep/model", str(next(iter(rates.values()), _NO_ROOM)), per="device")
        return
    yield _ceiling(measured, stopped, made_of, subject.device)


def _reachable_batches(step: Step, plan: ProbePlan) -> tuple[list[int], str]:
    """Find the batch sizes 1, 2, 4, ... to measure, and the reason for the last one.

    The reason is ``memory``, ``saturation``, ``time``, ``error`` or ``largest``.

    Raises:
        Exception: the model's own, if it trains on none of these sizes.
    """
    sizes: list[int] = []
    rates: list[float] = []
    room = _MemoryRoom(step)
    size = 1
    while size <= _MAX_BATCH:
        if not room.for_twice():
            return sizes, "memory"
        try:
            work = step.with_samples(size).works()["model"]
            run_round(work, 0.0)
            took = min((run_round(work, 0.0) for _ in range(2)), key=lambda timed: timed.wall_s)
        except Exception as error:
            if tells_full_memory(error_reason(error)):
                if step.batch.is_cuda:
                    torch.cuda.empty_cache()
                return sizes, "memory"
            if sizes:
                return sizes, "error"
            if size > 1:
                raise
            size *= 2  # batch norm needs two values of each channel
            continue
        sizes.append(size)
        rates.append(took.units / took.wall_s)
        if len(rates) > 3 and max(rates[-2:]) < _SATURATED * rates[-3]:
            return sizes, "saturation"
        if took.wall_s > max(_SLOW_S, _SLOW * plan.seconds):
            return sizes, "time"
        size *= 2
    return sizes, "largest"


class _MemoryRoom:
    """Tells whether twice the batch fits into main memory.

    There the kernel would kill the process; a GPU raises an error instead.
    """

    def __init__(self, step: Step) -> None:
        self._watched = not step.batch.is_cuda
        self._memory = MachineMemory()
        self._memory.prepare()
        self._cgroup = CgroupMemory()
        self._in_cgroup = False
        with suppress(OSError, ValueError):
            self._in_cgroup = self._cgroup.prepare() is None  # else nothing limits it
        # The peak so far is of other parts, such as steps with the whole batch. Where it cannot be
        # reset, the sweep ends too early rather than with a kill.
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_bytes(_RESET_PEAK)
        self._before = _own_bytes("VmRSS")

    def for_twice(self) -> bool:
        if not self._watched:
            return True
        grown = _own_bytes("VmHWM") - self._before
        return 2 * grown < _MEMORY_SHARE * self._available()

    def _available(self) -> float:
        """Return bytes that are left of the machine's memory, or of the control group's if fewer are."""
        available = self._memory.read()["memory/available"]
        if not self._in_cgroup:
            return available
        group = self._cgroup.read()
        return min(available, group["cgroup/memory_limit"] - group["cgroup/memory"])


def _own_bytes(name: str) -> int:
    """Return this process's memory: VmRSS, or VmHWM, which is its peak; 0: Linux does not tell."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0


def _ceiling(measured: dict[int, MeasuredRate], stopped: str, made_of: str, device: str) -> Ceiling:
    batches = sorted(measured)
    rates = [measured[size].value for size in batches]
    best = batches[rates.index(max(rates))]
    line = _fit_step_times(batches, [size / rate for size, rate in zip(batches, rates)])
    settings: dict[str, object] = {
        "batches": batches,
        "samples_per_s": rates,
        "low": [measured[size].low for size in batches],
        "high": [measured[size].high for size in batches],
        "best_batch": best,
        "knee": _knee(batches, rates),
        "stopped": stopped,
        "device": device,
    }
    if line is not None:
        settings |= vars(line)
    return as_ceiling(
        "sweep/model",
        measured[best],
        per="device",
        source=f"cached batches: {made_of}; SGD",
        settings=settings,
    )
