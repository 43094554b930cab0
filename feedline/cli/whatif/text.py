"""A prediction in the terminal: the throughput, the next limit, and the line to change."""

import shlex
from collections.abc import Iterator
from pathlib import Path

from feedline.analysis.ledger.finding import PredictedRate
from feedline.analysis.predict.limits import (
    ALONE,
    BOTH,
    CPUS,
    DISK,
    PASSES,
    STEP,
    WORKERS,
    NextLimit,
    WhatIf,
    rate_of,
)
from feedline.analysis.report.document import Document, Field, Fields, Headline, Note
from feedline.analysis.rules import BY_ID
from feedline.analysis.text.formatting import rate as format_rate
from feedline.cli.settings import LOADER, as_code, as_typed
from feedline.profiler.printable import printable_in

_LIMITS = {
    CPUS: "The CPUs would then be the limit: with more CPUs, throughput would be about {rate} "
    "samples/s",
    WORKERS: "The workers would then be the limit: with twice as many, throughput would be about "
    "{rate} samples/s",
    ALONE: "The main process would make its batches itself: with workers, throughput would be "
    "about {rate} samples/s",
    BOTH: "CPUs and workers would then be the limit together: with more of both, throughput would "
    "be about {rate} samples/s",
    PASSES: "The starts of epochs would then be the limit: if training did not wait for the first "
    "batch of each, throughput would be about "
    "{rate} samples/s",
    DISK: "The disk may then be the limit: no higher rate was observed",
    STEP: "The step itself would then be the limit: neither more workers nor more CPUs would gain "
    "5 %",
}


def document_of(answer: WhatIf, run: Path) -> Document:
    """Return the prediction or the refusal, remarks, and what to do next.

    Args:
        answer: the prediction.
        run: the run folder.
    """
    answer = printable_in(answer)
    notes = [*answer.remarks]
    if (predicted := rate_of(answer)) is None:
        why = answer.refused.message.rstrip(".") if answer.refused else "unknown"
        return Document((Headline(f"No prediction: {why}."), *map(Note, notes)))
    if answer.measured_interval:
        notes.append(rates_of_other_runs(answer.measured_interval))
    headline = Headline(
        f"With {_what(answer)}: {rate_change(predicted)}.", limit_sentence(answer.limit)
    )
    fields = tuple(_next_lines(answer, run))
    return Document((headline, *map(Note, notes), *([Fields(fields)] if fields else [])))


def _what(answer: WhatIf) -> str:
    """Return what is changed: settings, a fix by its id, or both."""
    settings = as_code(answer.settings)
    if not answer.fix:
        return settings
    return f"the fix of {answer.fix} ({settings})" if settings else f"the fix of {answer.fix}"


def _next_lines(answer: WhatIf, run: Path) -> Iterator[Field]:
    """Return the line of the program to change, and the command that proves the prediction."""
    if answer.line:
        yield Field("Change", answer.line, copied=True)
    proves, fix = "", BY_ID[answer.fix] if answer.fix else None
    if answer.settings and set(answer.settings) <= set(LOADER) and (not fix or fix.by_settings):
        proves = f"--set {as_typed(answer.settings)}"
    elif fix and not answer.settings and fix.by_variables:
        proves = f"--fix {answer.fix}"
    if proves:
        yield verify_line(run, proves)


def verify_line(run: Path, change: str) -> Field:
    """Return the command that proves what is predicted of a change.

    Args:
        change: as options, such as ``--set num_workers=4``.
    """
    command = f"feedline verify {shlex.quote(str(run))} {change} -- SCRIPT ARGS"
    return Field("Verify", command, copied=True)


def rate_change(rate: PredictedRate) -> str:
    """Return ``251 -> 410 samples/s (380 to 430)``.

    That is as recorded, with the change, and its 95 % interval.
    """
    return (
        f"{format_rate(rate.before)} -> {format_rate(rate.after)} samples/s "
        f"({format_rate(rate.low)} to {format_rate(rate.high)})"
    )


def rates_of_other_runs(interval: tuple[float, float]) -> str:
    """Say what the interval of a prediction leaves out: how runs without any change differ."""
    low, high = map(format_rate, interval)
    return (
        f"Intervals are for a run like this one; without any change, another may reach {low} "
        f"to {high} samples/s."
    )


def limit_sentence(limit: NextLimit | None) -> str:
    """Say what would limit the training then; "" if that is not known."""
    return (
        ""
        if limit is None
        else f"{_LIMITS[limit.id].format(rate=format_rate(limit.samples_per_s))}."
    )
