"""Runs to compare: what a stored run measured, with some of it changed."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from golden.record import RUNS

from feedline.analysis.diff.measures import compared_run
from feedline.analysis.diff.side import ComparedRun, Measure
from feedline.analysis.ledger.finding import Finding, Severity
from feedline.analysis.measure.model import Cpus


@cache
def stored(name: str) -> ComparedRun:
    """A run of tests/golden."""
    return compared_run(RUNS / name)


def changed(run: ComparedRun, change: Callable[[Measure], float], **of_run: float) -> ComparedRun:
    """The same run with each value multiplied.

    Args:
        change: quantity -> factor.
        of_run: ``waiting``.
    """
    measures = {id: replace(one, value=one.value * change(one)) for id, one in run.measures.items()}
    return replace(run, measures=measures, **of_run)  # type: ignore[arg-type]


def quiet(run: ComparedRun, error: float = 0.01) -> ComparedRun:
    """The same run, recorded on a machine that does little else: all values are known well."""
    measures = {id: replace(one, error=error, drift=0.0) for id, one in run.measures.items()}
    return beside(replace(run, measures=measures), 0.0)


def beside(run: ComparedRun, others: float) -> ComparedRun:
    """The same run beside other programs that use so many CPUs."""
    return replace(
        run, report=replace(run.report, cpus=Cpus(2.0, None, 2.0, 1.0, others, 1.0 - others))
    )


def making(run: ComparedRun, cpu_s: float, queued_s: float) -> ComparedRun:
    """The same run with other times of making a sample:

    CPU seconds, and those that its worker waited for a CPU.
    """
    report, workers = run.report, run.report.workers
    assert workers is not None
    total = replace(
        workers.per_sample["total"], cpu_s=cpu_s, runqueue_s=queued_s, wall_s=cpu_s + queued_s
    )
    of_sample = dict.fromkeys(("sample/total", "sample/dataset"), cpu_s)
    measures = {
        id: replace(one, value=of_sample.get(id, one.value)) for id, one in run.measures.items()
    }
    report = replace(
        report, workers=replace(workers, per_sample={**workers.per_sample, "total": total})
    )
    return replace(run, report=report, measures=measures)


def taking(run: ComparedRun, step_s: float, wait_s: float) -> ComparedRun:
    """The same run with another time of the step, and of its wait for data."""
    times = {"step/mean": step_s, "stage/wait": wait_s}
    report = replace(run.report, step=replace(run.report.step, mean_s=step_s))  # type: ignore[type-var]
    return replace(
        run,
        report=report,
        measures={
            id: replace(one, value=times.get(id, one.value)) for id, one in run.measures.items()
        },
    )


def with_check(run: ComparedRun, rule_id: str, message: str) -> ComparedRun:
    """The same run with a mistake found in its training."""
    convergence = run.report.convergence
    assert convergence is not None
    wrong = replace(convergence, checks=[Finding(rule_id, Severity.HIGH, message)])
    return replace(run, report=replace(run.report, convergence=wrong))
