"""Throughput of the user's model by batch size: where it stops to increase, and the time of a step as a line a + b B."""

import resource
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from feedline.pipelines.probes.measure import Measured, Plan, ceiling, in_turns, one_round, reason
from feedline.pipelines.probes.subject import Subject
from feedline.pipelines.probes.training_step import Step, cached_batch
from feedline.profiler.ceilings import Ceiling
from feedline.profiler.samplers.machine import MachineMemory

LARGEST = 4096
_KNEE_SHARE = 0.95  # of the best throughput
_SATURATED = 1.03  # two doublings that bring less than this factor end the sweep
_SLOW = 8.0  # a step that takes this many times ``plan.seconds``, and at least SLOW_S, ends the sweep
_SLOW_S = 0.5
_MEMORY_SHARE = 0.5  # of what is available: a larger batch that would need more is not tried on a CPU


@dataclass(frozen=True)
class Fit:
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


def knee(batches: Sequence[int], rates: Sequence[float]) -> int:
    """The smallest batch with at least 95 % of the best throughput.

    Args:
        batches: ascending. rates: samples/s of each.
    """
    return next(batch for batch, rate in zip(batches, rates) if rate >= _KNEE_SHARE * max(rates))


def fit(batches: Sequence[int], times_s: Sequence[float]) -> Fit | None:
    """Weighted least squares (Bevington and Robinson, Data Reduction and Error Analysis, chapter 6); None for fewer than three sizes."""
    if len(batches) < 3:
        return None
    times = np.asarray(times_s)
    design = np.stack([np.ones(len(batches)), np.asarray(batches, float)], axis=1)
    weighted = design / times[:, None]
    (a, b), *_ = np.linalg.lstsq(weighted, np.ones(len(batches)), rcond=None)
    distance = (design @ (a, b) - times) / times
    covariance = np.linalg.inv(weighted.T @ weighted) * (distance @ distance) / (len(batches) - 2)
    errors = np.sqrt(np.diag(covariance))
    return Fit(float(a), float(b), float(errors[0]), float(errors[1]), float(np.abs(distance).max()))


def probe(subject: Subject) -> Iterator[Ceiling]:
    """The best throughput over batch sizes 1, 2, 4, ... up to a limit of memory, time or saturation.

    ``settings``: batches, samples_per_s, low, high (lists), knee, stopped, and the fit of t(B) = a_s + b_s B with a_error_s, b_error_s,
    worst_share.
    """
    if subject.model is None:
        yield ceiling("sweep/model", "no model was given: name it with --model module:name", per="device")
        return
    batch, made_of = cached_batch(subject)
    try:
        step = Step.of(subject.model, batch[:2], subject.device)
        sizes, stopped = reachable(step, subject.plan)
        found = in_turns({str(size): step.with_samples(size).works()["model"] for size in sizes}, subject.plan)
    except Exception as error:
        yield ceiling("sweep/model", reason(error), per="device")
        return
    measured = {int(size): one for size, one in found.items() if isinstance(one, Measured)}
    if not measured:
        yield ceiling("sweep/model", str(next(iter(found.values()), stopped)), per="device")
        return
    yield _ceiling(measured, stopped, made_of, subject.device)


def reachable(step: Step, plan: Plan) -> tuple[list[int], str]:
    """Batch sizes 1, 2, 4, ... and the reason for the last one: ``memory``, ``saturation``, ``time`` or ``largest``."""
    sizes: list[int] = []
    rates: list[float] = []
    room = _Room(step)
    size = 1
    while size <= LARGEST:
        if not room.for_twice():
            return sizes, "memory"
        try:
            work = step.with_samples(size).works()["model"]
            one_round(work, 0.0)
            took = min((one_round(work, 0.0) for _ in range(2)), key=lambda one: one.wall_s)
        except (torch.OutOfMemoryError, MemoryError):
            if step.batch.is_cuda:
                torch.cuda.empty_cache()
            return sizes, "memory"
        sizes.append(size)
        rates.append(took.units / took.wall_s)
        if len(rates) > 3 and max(rates[-2:]) < _SATURATED * rates[-3]:
            return sizes, "saturation"
        if took.wall_s > max(_SLOW_S, _SLOW * plan.seconds):
            return sizes, "time"
        size *= 2
    return sizes, "largest"


class _Room:
    """Whether twice the batch fits into main memory, where the kernel would kill the process. A GPU raises an error instead."""

    def __init__(self, step: Step) -> None:
        self._watched = not step.batch.is_cuda
        self._memory = MachineMemory()
        self._memory.prepare()
        self._before = _peak_bytes()

    def for_twice(self) -> bool:
        if not self._watched:
            return True
        grown = _peak_bytes() - self._before
        return 2 * grown < _MEMORY_SHARE * self._memory.read()["memory/available"]


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _ceiling(measured: dict[int, Measured], stopped: str, made_of: str, device: str) -> Ceiling:
    batches = sorted(measured)
    rates = [measured[size].value for size in batches]
    best = batches[rates.index(max(rates))]
    line = fit(batches, [size / rate for size, rate in zip(batches, rates)])
    settings: dict[str, object] = {
        "batches": batches,
        "samples_per_s": rates,
        "low": [measured[size].low for size in batches],
        "high": [measured[size].high for size in batches],
        "best_batch": best,
        "knee": knee(batches, rates),
        "stopped": stopped,
        "device": device,
    }
    if line is not None:
        settings |= vars(line)
    return ceiling("sweep/model", measured[best], per="device", source=f"cached batches: {made_of}; SGD", settings=settings)
