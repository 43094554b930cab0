"""Measure two things in turns and compare them pair by pair: what the benchmarks share.

A shared machine gets slower and faster within seconds. Two runs that follow each other directly see
nearly the same machine; the order within a pair swaps from pair to pair, so that a drift helps both
alike; the median of the differences or ratios forgets the pair that somebody else disturbed, and a
bootstrap of that median says how much of it is luck.
"""

import importlib.metadata
import json
import os
import platform
import random
import resource
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

RESAMPLES, CONFIDENCE = 5000, 0.95
T = TypeVar("T")


@dataclass(frozen=True)
class Estimate:
    """A median with its interval.

    Attributes:
        median, low, high: the interval is a percentile bootstrap of the median (Efron and
        Tibshirani, An Introduction to the Bootstrap, 13.3).
        pairs: how many values it is the median of.
    """

    median: float
    low: float
    high: float
    pairs: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Estimate":
        dice = random.Random(0)
        medians = sorted(
            statistics.median(dice.choices(values, k=len(values))) for _ in range(RESAMPLES)
        )
        cut = round(RESAMPLES * (1 - CONFIDENCE) / 2)
        return cls(statistics.median(values), medians[cut], medians[-1 - cut], len(values))

    def text(self, scale: float = 1.0, digits: int = 2) -> str:
        """``1.23 [1.10, 1.31]``"""
        return "{:.{d}f} [{:.{d}f}, {:.{d}f}]".format(
            self.median * scale, self.low * scale, self.high * scale, d=digits
        )


def in_turns(
    names: Sequence[str], measure: Callable[[str], T], rounds: int
) -> Iterator[dict[str, T]]:
    """Measure each name once a round, forwards and backwards in turns."""
    for number in range(rounds):
        found = {
            name: measure(name) for name in (names if number % 2 == 0 else list(reversed(names)))
        }
        yield {name: found[name] for name in names}


def tree_cpu_s() -> float:
    """CPU seconds of this process and of its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


@dataclass(frozen=True)
class Ended:
    """A process that ran to its end, with the children that it waited for.

    Attributes:
        exit_code: negative: the signal that ended it.
        peak_bytes: the largest resident set of any one of them.
    """

    exit_code: int
    wall_s: float
    cpu_s: float
    peak_bytes: int


def run(
    command: Sequence[str],
    cwd: Path,
    environment: dict[str, str] | None = None,
    quiet: bool = True,
    limit_s: float | None = None,
) -> Ended:
    """Run a command to its end. FEEDLINE_BENCHMARK_T0 in its environment is the time at which it
    was started (perf_counter_ns).

    Args:
        limit_s: kill it, and all that it started, after so long.
    """
    out = subprocess.DEVNULL if quiet else None
    started = time.perf_counter_ns()
    given = {**os.environ, **(environment or {}), "FEEDLINE_BENCHMARK_T0": str(started)}
    given.pop(
        "PYTHONDONTWRITEBYTECODE", None
    )  # it would compile torch's Python anew in every process, in 3 to 6 s
    process = subprocess.Popen(
        command, cwd=cwd, env=given, stdout=out, stderr=out, start_new_session=True
    )
    timer = threading.Timer(
        limit_s or threading.TIMEOUT_MAX, os.killpg, (process.pid, signal.SIGKILL)
    )
    timer.daemon = True
    timer.start()
    _, status, used = os.wait4(process.pid, 0)
    timer.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    return Ended(
        process.returncode,
        (time.perf_counter_ns() - started) / 1e9,
        used.ru_utime + used.ru_stime,
        used.ru_maxrss * 1024,
    )


def wait_for_quiet(load: float, at_most_s: float) -> float:
    """Wait until the load average of the last minute is below ``load``. Returns what it is then."""
    until = time.monotonic() + at_most_s
    while os.getloadavg()[0] > load and time.monotonic() < until:
        time.sleep(10)
    return os.getloadavg()[0]


def machine() -> dict[str, object]:
    """What the figures depend on."""
    versions = {}
    for name in ("torch", "torchvision", "numpy", "pillow", "viztracer", "scalene"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next(
        (line.split(":")[1].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "kernel": platform.release(),
        **versions,
    }


def write_json(path: Path | None, **results: object) -> None:
    """Keep all figures, not only the medians. Of the script's path, only its name is kept."""
    if path is not None:
        path.write_text(
            json.dumps(
                {
                    "command": ["python", Path(sys.argv[0]).name, *sys.argv[1:]],
                    "machine": machine(),
                    **results,
                },
                indent=1,
            )
        )


def table(rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first row is its head."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    return "\n".join(
        [lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]]
    )
