"""Bounds of a run's throughput, each in samples/s: which one is the nearest, and which the next.

They are what the run itself shows, and what was measured apart. One trace gives most of them by
accounting: workers over wall time per sample, CPUs over CPU seconds per sample, the step without
its waiting (as in Kuchnik et al., Plumber, MLSys 2022).
"""

import math
from collections.abc import Iterator

from feedline.analysis.explain import limit_words
from feedline.analysis.explain.limit_words import RATE, sentence
from feedline.analysis.explain.model import MeasuredRun, Roofline, Sweep, ThroughputBound
from feedline.analysis.measure.feeding import together
from feedline.analysis.measure.model import Workers
from feedline.analysis.measure.stages import MAKING_STAGES, SAMPLE_STAGES, UNATTRIBUTED
from feedline.analysis.measure.step_model import StepSummary
from feedline.analysis.text.formatting import count, counted, number, seconds, size
from feedline.profiler.ceilings import Ceiling, Ceilings

_LEAST = 1e-3  # of a figure: less than its last digit

_THIS_RUN = "this run"
_WAITING = ("wait", "epoch_start")  # of the main process
_MOVING = ("transport", "pin", "copy")  # in the main process
# a read that is blocked for so much of its time comes from a disk; so much of a step is told
_MOSTLY = 0.5
_NO_CEILINGS = (
    "measure it with `feedline probe -o FILE`, then `feedline report RUN --ceilings FILE`"
)
# the clocks of several processes, and steps that begin before their first batch was asked for
_MARGIN = 0.03
_WARM = 3  # columns of a long series that are left out of its spread
_KNEE_SHARE = 0.95


def _of_run(run: MeasuredRun) -> list[ThroughputBound]:
    """Return what the run's own records say."""
    step, workers, batch = run.step, run.workers, run.throughput.batch_size
    if step is None or not batch:
        return []
    bounds = [
        *_of_step(run, step, batch),
        *_of_workers(workers, _in_turns(workers, step)),
        *_of_cpus(run, batch),
    ]
    return [roof for roof in bounds if math.isfinite(roof.samples_per_s) and roof.samples_per_s > 0]


def _in_turns(workers: Workers | None, step: StepSummary) -> bool:
    """Return the bound of samples that the main process makes between one step and the next."""
    return (
        workers is not None
        and workers.processes == 0
        and any(step.stages.get(name) for name in MAKING_STAGES)
    )


def _for_ranks_s(run: MeasuredRun) -> float:
    """Return the seconds of the mean step in which the rank only waited for another rank.

    No work of its own is in them.
    """
    shown = min(run.ranks, key=int, default="") if run.shown is None else str(run.shown)
    own = run.ranks[shown].comm if run.ranks else None
    return (own.exposed_wait_s or 0.0) if own else 0.0


def _left_out(step: StepSummary, turns: bool, for_ranks: float) -> dict[str, float]:
    """Return the seconds of the mean step that are none of its own work, and of what they are."""
    return {
        "in the DataLoader" if turns else "waiting for batches": sum(
            step.stages.get(name, 0.0) for name in _WAITING
        ),
        "making batches": sum(step.stages.get(name, 0.0) for name in MAKING_STAGES)
        if turns
        else 0.0,
        "waiting for other ranks": for_ranks,
        "waiting for a CPU in forward and backward": step.runqueue_s or 0.0,
        "in steps that were not recorded in detail": step.stages.get(UNATTRIBUTED, 0.0),
    }


def _cpus(run: MeasuredRun) -> float | None:
    """Return the CPUs that a rank may use; those of the same machine share them."""
    available = run.run.machine.get("effective_cpus") or run.run.machine.get("cpus")
    ranks = run.cpus.ranks if run.cpus else max(run.run.ranks, 1)
    return float(available) / ranks if isinstance(available, (int, float)) else None


def _of_step(run: MeasuredRun, step: StepSummary, batch: float) -> Iterator[ThroughputBound]:
    turns, for_ranks = _in_turns(run.workers, step), _for_ranks_s(run)
    parts, per_step = _left_out(step, turns, for_ranks), f"per step of {count(batch)} samples"
    alone = step.mean_s - sum(parts.values())
    if alone > 0:
        received = step.stages.get("transport", 0.0)
        most = (
            f", {seconds(received)} of it receiving batches from workers"
            if received > _MOSTLY * alone
            else ""
        )
        yield _roof(
            "step",
            "step",
            "step",
            batch / alone,
            f"{seconds(alone)} {per_step}{most}{_without(parts, step.mean_s)}",
        )
    if step.gpu_work is not None and step.gpu_s:
        message = (
            f"{seconds(step.gpu_s)} of work {per_step}, in the "
            f"{counted(step.gpu_work.steps, 'step')} that torch.profiler recorded"
        )
        yield _roof("gpu", "GPU", "gpu", batch / step.gpu_s, message)
    if turns:
        both, apart = step.mean_s - for_ranks, {"waiting for other ranks": for_ranks}
        message = (
            f"no workers: each step makes its batch, then computes on it, {seconds(both)} "
            f"{per_step}{_without(apart, step.mean_s)}"
        )
        yield _roof("turns", "serialized", "turns", batch / both, message)
    for name in _MOVING:
        on_gpu = (step.gpu_stages or {}).get(name)
        took = on_gpu or step.stages.get(name, 0.0)
        if took > 0:
            yield _roof(
                name,
                name,
                "stage",
                batch / took,
                f"{seconds(took)} per step{' on the GPU' if on_gpu else ''}",
                binds=False,
            )


def _of_workers(workers: Workers | None, turns: bool) -> Iterator[ThroughputBound]:
    total = workers.per_sample.get("total") if workers else None
    if workers is None or total is None:
        return
    busy = total.wall_s - (total.runqueue_s or 0.0)
    if busy > 0 and (workers.processes or turns):
        processes = max(workers.processes, 1)
        each = (
            f"{seconds(busy)} per "
            f"sample{_without({'waiting for a CPU': total.runqueue_s or 0.0}, total.wall_s)}"
        )
        message = each if turns else f"{processes} worker{'s' * (processes > 1)}, {each}"
        yield _roof(
            "workers",
            "making samples one after another" if turns else "workers",
            "workers",
            processes / busy,
            message,
        )


def _of_cpus(run: MeasuredRun, batch: float) -> Iterator[ThroughputBound]:
    step, workers, cores = run.step, run.workers, _cpus(run)
    if not cores:
        return
    have = limit_words.cpus(cores, run)
    if step is not None and step.cpu_s:
        each = step.cpu_s / batch
        yield _roof(
            limit_words.ALL_CPUS,
            "all CPUs",
            "cores",
            cores / each,
            f"{have}; {seconds(each)} of CPU time per sample in total",
        )
    costs = workers.per_sample if workers else {}
    for stage in ("total", *SAMPLE_STAGES):
        cost = costs.get(stage)
        if cost is not None and cost.cpu_s and stage not in _MOVING:
            id, name, kind = (
                ("loader_on_all_cpus", "loader on all CPUs", "cores")
                if stage == "total"
                else (stage, stage, "stage")
            )
            message = f"{have}; {seconds(cost.cpu_s)} of CPU time per sample"
            yield _roof(id, name, kind, cores / cost.cpu_s, message, binds=stage == "total")


def _roof(
    id: str, name: str, kind: str, samples_per_s: float, message: str, binds: bool = True
) -> ThroughputBound:
    return ThroughputBound(id, name, kind, samples_per_s, None, None, message, _THIS_RUN, binds)


def _of_device(
    peak_flops: float, flop_per_sample: float, computed_in: str, source: str
) -> ThroughputBound:
    """Return what the device's peak allows."""
    arithmetic = f" in {_spoken(computed_in)}" if computed_in else ""
    message = (
        f"{number(peak_flops / 1e12)} TFLOP/s{arithmetic} at "
        f"{number(flop_per_sample / 1e9)} GFLOP per sample"
    )
    return ThroughputBound(
        "device",
        "device",
        "device",
        peak_flops / flop_per_sample,
        None,
        None,
        message,
        source,
        True,
    )


def _of_ceilings(run: MeasuredRun, ceilings: Ceilings) -> list[ThroughputBound]:
    """Return what was measured apart, in this run's samples."""
    bounds: list[ThroughputBound] = []
    measured = [
        ceiling for ceiling in ceilings.ceilings if ceiling.value and math.isfinite(ceiling.value)
    ]
    bounds += [*_disk(run, ceilings, measured), *_moving(run, measured)]
    for ceiling in measured:
        if ceiling.part == "loader" and ceiling.value:
            name = ceiling.name.partition("/")[2]
            bounds.append(
                ThroughputBound(
                    ceiling.name,
                    name,
                    "loader",
                    ceiling.value,
                    ceiling.low,
                    ceiling.high,
                    ceiling.name,
                    ceiling.source,
                    False,
                )
            )
    return bounds


def _disk(
    run: MeasuredRun, ceilings: Ceilings, measured: list[Ceiling]
) -> Iterator[ThroughputBound]:
    """Return the best that reading did with a cold and with a warm page cache.

    It read the user's own files where they were measured, else in order.
    """
    costs = run.workers.per_sample if run.workers else {}
    read = costs.get("read")
    nbytes = (
        (read.bytes if read else None)
        or (costs["total"].bytes if "total" in costs else None)
        or ceilings.sample_bytes
    )
    from_disk = read is not None and (read.blocked_s or 0.0) > _MOSTLY * read.wall_s
    for cache in ("cold", "warm"):
        reads = [
            ceiling
            for ceiling in measured
            if ceiling.part == "read" and ceiling.settings.get("cache") == cache
        ]
        chosen = [ceiling for ceiling in reads if ceiling.settings.get("pattern") == "files"]
        chosen = chosen or [
            ceiling for ceiling in reads if ceiling.settings.get("pattern") == "sequential"
        ]
        bounds = [
            roof
            for ceiling in chosen
            if (
                roof := _in_samples(
                    ceiling,
                    f"{cache}_disk",
                    f"disk, {cache} cache",
                    nbytes,
                    from_disk == (cache == "cold"),
                )
            )
        ]
        yield from sorted(bounds, key=lambda roof: -roof.samples_per_s)[:1]


def _moving(run: MeasuredRun, measured: list[Ceiling]) -> Iterator[ThroughputBound]:
    """Return the transport between processes and copies to the device, of batches like the run's."""
    loader = together([loader for loader in run.loaders if loader.role == "training"])
    stages = run.step.stages if run.step else {}
    if loader is None or not loader.batch_bytes or not loader.samples:
        return
    nbytes, batch = loader.batch_bytes, loader.samples / loader.batches
    dtype = "float32" if "float32" in loader.flags else "uint8"
    wanted: dict[str, dict[str, object]] = {
        "transport": {"dtype": dtype, "how": "shared" if "shared" in loader.flags else "copied"},
        "pin": {},
        "copy": {"pinned": "pinned" in loader.flags},
    }
    for part, settings in wanted.items():
        fitting = [
            ceiling
            for ceiling in measured
            if ceiling.part == part and settings.items() <= ceiling.settings.items()
        ]
        if part in stages and fitting:
            nearest = min(
                fitting, key=lambda ceiling: abs(math.log(_bytes(ceiling, nbytes) / nbytes))
            )
            roof = _in_samples(nearest, f"{part}_alone", f"{part} alone", nbytes / batch, True)
            yield from [roof] if roof else []


def _bytes(ceiling: Ceiling, other: float) -> float:
    nbytes = ceiling.settings.get("bytes") or ceiling.settings.get("batch_bytes")
    return float(nbytes) if isinstance(nbytes, (int, float)) and nbytes > 0 else other


def _in_samples(
    ceiling: Ceiling, id: str, name: str, nbytes: float | None, binds: bool
) -> ThroughputBound | None:
    """Return a ceiling in B/s, or in samples/s of another size, for samples of ``nbytes``.

    None: their size is not known.
    """
    assert ceiling.value is not None
    if ceiling.unit == "samples/s":
        theirs, samples = ceiling.settings.get("batch_bytes"), ceiling.settings.get("batch_size")
        factor = 1.0
        if nbytes and isinstance(theirs, (int, float)) and isinstance(samples, (int, float)):
            factor = theirs / samples / nbytes
        message = f"{ceiling.name}: {count(ceiling.value)} samples/s"
    elif ceiling.unit == "B/s" and nbytes:
        factor = 1 / nbytes
        message = f"{ceiling.name}: {size(ceiling.value)}/s at {size(nbytes)} per sample"
    else:
        return None
    low, high = (None if edge is None else edge * factor for edge in (ceiling.low, ceiling.high))
    return ThroughputBound(
        id, name, "ceiling", ceiling.value * factor, low, high, message, ceiling.source, binds
    )


def _peak(ceilings: Ceilings | None, computed_in: str) -> tuple[float | None, str]:
    """Find it in a file of ceilings: the maker's figure before the best round that was measured.

    Args:
        computed_in: as in ``Flop``. Empty: the peak of the model that was probed.

    Returns:
        FLOP/s and where they are from; None and why they are not known.
    """
    if ceilings is None:
        return None, _NO_CEILINGS
    products = [
        product
        for product in ceilings.ceilings
        if product.part == "compute" and product.unit == "FLOP/s" and product.value
    ]
    if not computed_in or not products:
        return _of_the_probe(ceilings, products)
    for how in ("specified", "matmul"):
        for product in products:
            if product.name.startswith(f"compute/{how} ") and _arithmetic(product) == computed_in:
                return product.high or product.value, f"{product.name}: {product.source}"
    return (
        None,
        f"the ceilings file gives no peak FLOP/s for {_spoken(computed_in)}, which this run uses",
    )


def _spoken(computed_in: str) -> str:
    return "TF32" if computed_in == "tf32" else computed_in


def _arithmetic(product: Ceiling) -> str:
    """Return what a product was computed in.

    An older feedline measured or named float32 with TF32 where the settings allowed it.
    """
    dtype = str(product.settings.get("dtype", ""))
    return "tf32" if dtype == "float32" and product.settings.get("tf32") else dtype


def _of_the_probe(ceilings: Ceilings, products: list[Ceiling]) -> tuple[float | None, str]:
    if not ceilings.peak_flops:
        return None, "the ceilings file gives no peak FLOP/s"
    same = [product for product in products if ceilings.peak_flops in (product.value, product.high)]
    return ceilings.peak_flops, f"{same[0].name}: {same[0].source}" if same else "the ceilings file"


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
    peak_flops, peak_source = _peak(ceilings, computed_in)
    bounds = _of_run(run) + (_of_ceilings(run, ceilings) if ceilings else [])
    if peak_flops and flop:
        bounds.append(_of_device(peak_flops, flop, computed_in, peak_source))
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
        message=_behind(run.step)
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


def _behind(step: StepSummary) -> str:
    """Say why no limit is named where the GPU's work does not fit into the step."""
    work = step.gpu_work
    assert work is not None
    return (
        f"No limit is named: the {counted(work.steps, 'step')} that torch.profiler recorded need "
        f"{seconds(work.busy_s)} of the GPU's time "
        f"each, and the mean step took only {seconds(step.mean_s)}. Record more steps."
    )


def _without(parts: dict[str, float], whole_s: float) -> str:
    """Return what a figure excludes, in words, so that it is not mistaken for the whole."""
    named = [
        f"{seconds(spent)} {what}" for what, spent in parts.items() if spent >= _LEAST * whole_s > 0
    ]
    return (
        f", excluding "
        f"{' and '.join([', '.join(named[:-1]), named[-1]] if len(named) > 1 else named)}"
        if named
        else ""
    )
