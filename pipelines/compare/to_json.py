"""A comparison as plain data for JSON files, and in the format of pytest-benchmark."""

import datetime
import math
import statistics
from dataclasses import asdict
from typing import Any

from feedline.pipelines.compare.ranking import median_interval, places
from feedline.pipelines.compare.result import SCHEMA_VERSION, Comparison, Row
from feedline.profiler.ceilings import Ceiling, Ceilings


def plain(comparison: Comparison) -> dict[str, Any]:
    """The whole comparison as plain data.

    schema_version  1; it grows when a name below changes its meaning or goes
    photos, sample_bytes, left_out (kind -> paths), settings, cache (warm, cold), cores, machine
    choice          a few sentences
    takes, lines    the loader to take, and the lines of a program that trains with it; both empty: none is better than the present one
    compute         null, or step_s and cpu_s per sample
    operations      a list, each operation of the transform in each library (backend) against torchvision on PIL images, random parameters
                    fixed: operation, backend, mean and max in gray levels (null: it cannot), says; or empty, and operations_why
    loaders         a list:
        place       1: the fastest; loaders whose order is luck share one; null: not measured
        name, about, why (not measured; else empty), missing (operations it leaves out)
        low, high   of samples_per_s: 95 % interval of the median (of fewer than 6 rounds: the slowest and the fastest)
        samples_per_s, cpu_s, main_s, gpu_s, cores, first_batch_s: medians over the rounds, the seconds per sample but for first_batch_s
        parts       one per round: samples, wall_s, cpu_s, main_s, gpu_s, first_batch_s of that part
        stages      CPU seconds per sample: read, decode, augment, transport; or null, and stages_why
        epoch       samples, wall_s, wrong (empty: every sample came exactly once)
        pixels      images, mean, largest_mean, max in gray levels, outside (empty: equal within the bounds); or null, and pixels_why
        feeds       null, or samples_per_s, limit (loader, compute, cores), limits, low and high
    """
    data = {name: value for name, value in asdict(comparison).items() if name != "rows"}
    data["operations"] = [_finite(one) for one in data["operations"]]
    place_of = {row.name: place for place, row in places(comparison.measured)}
    return {"schema_version": SCHEMA_VERSION, **data, "loaders": [_row(row, place_of.get(row.name)) for row in comparison.rows]}


def _finite(difference: dict[str, Any]) -> dict[str, Any]:
    """JSON has no infinity, which stands for images of another size."""
    message = difference.pop("message")
    if difference["mean"] is None or math.isfinite(difference["mean"]):
        return {**difference, "says": message}
    return {**difference, "mean": None, "max": None, "says": "; ".join(filter(None, ("another size", message)))}


def _row(row: Row, place: int | None) -> dict[str, Any]:
    names = ("samples_per_s", "cpu_s", "main_s", "gpu_s", "cores", "first_batch_s")
    low, high = median_interval(row.rates) if row.measured else (None, None)
    return {
        "place": place,
        **asdict(row),
        "low": low,
        "high": high,
        **{name: getattr(row, name) if row.measured else None for name in names},
    }


def benchmark(comparison: Comparison) -> dict[str, Any]:
    """In the format that ``pytest-benchmark compare`` reads: a benchmark per loader, in seconds per sample."""
    return {
        "version": "5.1.0",
        "datetime": datetime.datetime.now(datetime.timezone.utc).isoformat(),
        "machine_info": comparison.machine,
        "commit_info": {},
        "benchmarks": [_benchmark(row, comparison.settings) for row in comparison.measured],
    }


def _benchmark(row: Row, settings: dict[str, object]) -> dict[str, Any]:
    return {
        "group": "feedline compare",
        "name": row.name,
        "fullname": f"feedline compare::{row.name}",
        "params": None,
        "param": None,
        "extra_info": {"cpu_s_per_sample": row.cpu_s, "samples_per_s": row.samples_per_s, **settings},
        "options": {"disable_gc": False, "timer": "perf_counter", "min_rounds": len(row.parts), "warmup": True},
        "stats": _stats([1 / rate for rate in row.rates]),
    }


def _stats(seconds: list[float]) -> dict[str, Any]:
    """What pytest-benchmark calls stats, over the rounds."""
    ordered = sorted(seconds)
    mean = statistics.fmean(ordered)
    deviation = statistics.stdev(ordered) if len(ordered) > 1 else 0.0
    q1, _, q3 = statistics.quantiles(ordered, n=4, method="inclusive") if len(ordered) > 1 else ordered * 3
    low, high = q1 - 1.5 * (q3 - q1), q3 + 1.5 * (q3 - q1)
    far = sum(abs(one - mean) > deviation for one in ordered)
    outside = sum(not low <= one <= high for one in ordered)
    return {
        "min": ordered[0],
        "max": ordered[-1],
        "mean": mean,
        "stddev": deviation,
        "rounds": len(ordered),
        "median": statistics.median(ordered),
        "iqr": q3 - q1,
        "q1": q1,
        "q3": q3,
        "iqr_outliers": outside,
        "stddev_outliers": far,
        "outliers": f"{far};{outside}",
        "ld15iqr": next(one for one in ordered if one >= low),
        "hd15iqr": next(one for one in reversed(ordered) if one <= high),
        "ops": 1 / mean,
        "total": sum(ordered),
        "data": seconds,
        "iterations": 1,
    }


def ceilings(comparison: Comparison) -> Ceilings:
    """A ceiling per loader, for the roofline."""
    settings = {**comparison.settings, "cache": comparison.cache}
    found = []
    for row in comparison.rows:
        name, source = f"loader/{row.name}", f"feedline compare: median of {len(row.parts)} rounds"
        if row.measured:
            low, high = min(row.rates), max(row.rates)
            found.append(Ceiling(name, "loader", row.samples_per_s, low, high, cpu_s=row.cpu_s, source=source, settings=settings))
        else:
            found.append(Ceiling(name, "loader", None, settings=settings, why=row.why))
    return Ceilings(found, comparison.machine, sample_bytes=comparison.sample_bytes, cores=comparison.cores)
