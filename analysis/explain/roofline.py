"""The run among its roofs: which bound of the throughput is nearest, and which is the next.

The lowest roof is the bottleneck (Williams et al., Roofline, Communications of the ACM 52(4), 2009,
with samples for bytes).
"""

import math

from feedline.analysis.explain import roofs
from feedline.analysis.explain.limit_words import RATE, behind, sentence
from feedline.analysis.explain.model import MeasuredRun, Roofline, Sweep, ThroughputBound
from feedline.analysis.explain.roofs import peak
from feedline.profiler.ceilings import Ceilings

# the clocks of several processes, and steps that begin before their first batch was asked for
_MARGIN = 0.03
_WARM = 3  # columns of a long series that are left out of its spread
_KNEE_SHARE = 0.95


def roofline(run: MeasuredRun, ceilings: Ceilings | None = None) -> Roofline | None:
    """Put a run on its roofline.

    Args:
        run: as it was measured.
        ceilings: of this machine, data and model; None: only the roofs that the run itself shows.

    Returns:
        None for a run without steps, or with batches of unknown size.
    """
    rate = run.throughput.samples_per_s
    if rate is None or run.step is None:
        return None
    flop, flop_source = _flop_per_sample(run, ceilings)
    computed_in = run.step.flop.computed_in if run.step.flop else ""
    peak_flops, peak_source = peak(ceilings, computed_in)
    bounds = roofs.of_run(run) + (roofs.of_ceilings(run, ceilings) if ceilings else [])
    if peak_flops and flop:
        bounds.append(roofs.of_device(peak_flops, flop, computed_in, peak_source))
    bounds.sort(key=lambda roof: roof.samples_per_s)
    mfu = rate * flop / peak_flops if flop and peak_flops else None
    if mfu is not None and mfu > 1 + _MARGIN:
        peak_source = (
            f"{peak_source}; the run reached {mfu:.1f} times that: the machine may have "
            f"been busy when the peak was measured"
        )
        mfu = None
    low, high = _spread(run)
    pace, least = run.throughput, low or rate
    if pace.low and pace.high and pace.of_all_ranks:  # what is told of the measured rate elsewhere
        low, high = (rate * end / pace.of_all_ranks for end in (pace.low, pace.high))
    nearest, following = (None, None) if run.step.gpu_is_behind else _bounds(bounds, least)
    unit = RATE if run.throughput.ranks == 1 else f"{RATE} per rank"
    return Roofline(
        samples_per_s=rate,
        low=low,
        high=high,
        flop_per_sample=flop,
        flop_source=flop_source,
        peak_flops=peak_flops,
        peak_source=peak_source,
        mfu=mfu,
        roofs=bounds,
        nearest=nearest.name if nearest else None,
        next=following.name if following else None,
        becomes=following.samples_per_s if following else None,
        message=behind(run.step)
        if run.step.gpu_is_behind
        else sentence(rate, nearest, following, unit),
        sweep=_sweep(ceilings) if ceilings else None,
        nearest_id=nearest.id if nearest else None,
        next_id=following.id if following else None,
    )


def _flop_per_sample(run: MeasuredRun, ceilings: Ceilings | None) -> tuple[float | None, str]:
    """Return the FLOP of forward and backward for one sample, and how it is known or why not."""
    counted = run.step.flop if run.step else None
    if counted is not None and counted.samples:
        return (
            counted.forward + counted.backward
        ) / counted.samples, "counted in one step of this run"
    if ceilings is not None and ceilings.flop_per_sample:
        return ceilings.flop_per_sample, "counted by `feedline probe` on the model given to it"
    hook = next((hook for hook in run.hooks if hook.name == "FLOP" and not hook.attached), None)
    return None, hook.why if hook else "they were not counted in any step of this run"


def _spread(run: MeasuredRun) -> tuple[float | None, float | None]:
    """Return the throughput two standard errors of the mean step below and above.

    It comes from the columns of the series, so a slow drift is in it too.
    """
    rate, step = run.throughput.samples_per_s, run.step
    if rate is None or step is None:
        return None, None
    means = [sum(parts) for parts in zip(*step.series.stages.values(), strict=True)]
    steps = step.series.steps
    if len(means) >= 4 * _WARM:
        means, steps = means[_WARM:], steps[_WARM:]
    if len(means) < 4:
        return None, None
    total = sum(steps)
    mean = sum(n * mean_s for n, mean_s in zip(steps, means, strict=True)) / total
    error = (
        math.sqrt(sum((n * (mean_s - mean)) ** 2 for n, mean_s in zip(steps, means, strict=True)))
        / total
        / mean
    )
    return rate / (1 + 2 * error), rate / max(1 - 2 * error, 0.01)


def _bounds(
    bounds: list[ThroughputBound], at_least: float
) -> tuple[ThroughputBound | None, ThroughputBound | None]:
    """Return the nearest roof and the next, of those that can bind.

    One that lies below the run did not hold.

    Args:
        bounds: lowest first.
        at_least: samples/s that the run reached for certain.
    """
    above = [
        roof
        for roof in bounds
        if roof.binds and (roof.high or roof.samples_per_s) >= at_least * (1 - _MARGIN)
    ]
    if above and above[0].kind == "gpu":  # which a fix of anything else does not lift
        return above[0], None
    return (above[0] if above else None), (above[1] if len(above) > 1 else None)


def _sweep(ceilings: Ceilings) -> Sweep | None:
    """Return the throughput by batch size, as `feedline probe` measured it."""
    for ceiling in ceilings.ceilings:
        if ceiling.part == "sweep" and ceiling.value:
            rows = _columns(ceiling.settings)
            if len(rows) >= 2:
                sizes, rates, low, high = (list(column) for column in zip(*rows, strict=True))
                knee = next(
                    int(size)
                    for size, rate in zip(sizes, rates, strict=True)
                    if rate >= _KNEE_SHARE * max(rates)
                )
                return Sweep([int(size) for size in sizes], rates, low, high, knee, ceiling.source)
    return None


def _columns(settings: dict[str, object]) -> list[tuple[float, float, float, float]]:
    lists = [settings.get(name) for name in ("batches", "samples_per_s", "low", "high")]
    if not all(isinstance(column, list) for column in lists):
        return []
    rows = [
        row
        for row in zip(*lists, strict=False)
        if all(isinstance(cell, (int, float)) and cell > 0 for cell in row)
    ]
    return sorted((float(a), float(b), float(c), float(d)) for a, b, c, d in rows)
