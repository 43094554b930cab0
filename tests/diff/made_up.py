"""Runs to compare: what a stored run measured, with some of it changed."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from golden.record import RUNS

from feedline.analysis.diff.measure import Measure
from feedline.analysis.diff.side import Measured
from feedline.analysis.model import Cpus


@cache
def stored(name: str) -> Measured:
    """A run of tests/golden."""
    return Measured.of(RUNS / name)


def changed(run: Measured, change: Callable[[Measure], float], **of_run: float) -> Measured:
    """The same run with each value multiplied.

    Args:
        change: quantity -> factor.
        of_run: ``waiting``.
    """
    measures = {id: replace(one, value=one.value * change(one)) for id, one in run.measures.items()}
    return replace(run, measures=measures, **of_run)  # type: ignore[arg-type]


def quiet(run: Measured, error: float = 0.01) -> Measured:
    """The same run, recorded on a machine that does little else: all values are known well."""
    measures = {id: replace(one, error=error, drift=0.0) for id, one in run.measures.items()}
    return replace(run, measures=measures)


def beside(run: Measured, others: float) -> Measured:
    """The same run beside other programs that use so many CPUs."""
    return replace(run, report=replace(run.report, cpus=Cpus(2.0, None, 2.0, 1.0, others, 1.0 - others)))
