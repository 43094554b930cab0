"""A prediction in the terminal: the throughput in one sentence, what would limit it then, and the line to change."""

import shlex
from collections.abc import Iterator
from pathlib import Path

from feedline.analysis.formatting import number
from feedline.analysis.predict.change import PredictedRate
from feedline.analysis.predict.limits import ALONE, BOTH, CPUS, DISK, PASSES, STEP, WORKERS, NextLimit
from feedline.analysis.predict.whatif import WhatIf, rate_of
from feedline.analysis.report.console import Console
from feedline.analysis.report.tables import plain
from feedline.cli.settings import LOADER, as_code, as_typed
from feedline.profiler.printable import printable_in

_LIMITS = {
    CPUS: "The CPUs would then be the limit: with more CPUs, throughput would be about {rate} samples/s",
    WORKERS: "The workers would then be the limit: with twice as many, throughput would be about {rate} samples/s",
    ALONE: "The main process would make its batches itself: with workers, throughput would be about {rate} samples/s",
    BOTH: "CPUs and workers would then be the limit together: with more of both, throughput would be about {rate} samples/s",
    PASSES: "The starts of epochs would then be the limit: if training did not wait for the first batch of each, throughput would be about "
    "{rate} samples/s",
    DISK: "The disk may then be the limit: no higher rate was observed",
    STEP: "The step itself would then be the limit: neither more workers nor more CPUs would gain 5 %",
}


def show(found: WhatIf, console: Console, run: Path) -> None:
    """Print it: remarks, the prediction or the refusal, and what to do next.

    Args:
        run: the run folder.
    """
    found = printable_in(found)
    for remark in found.remarks:
        console.print(plain(remark))
    if (rate := rate_of(found)) is None:
        console.print(plain(f"No prediction: {found.refused.message.rstrip('.') if found.refused else 'unknown'}.", "bold"))
        return
    console.print(plain(f"With {_what(found)}: {show_rate(rate)}. {limit_sentence(found.limit)}".rstrip(), "bold"))
    if found.measured_interval:
        console.print(plain(rates_of_other_runs(found.measured_interval)))
    for line in _next_lines(found, run):
        console.print(plain(line), soft_wrap=True)


def _what(found: WhatIf) -> str:
    """What is changed: settings, a fix by its id, or both."""
    settings = as_code(found.settings)
    if not found.fix:
        return settings
    return f"the fix of {found.fix} ({settings})" if settings else f"the fix of {found.fix}"


def _next_lines(found: WhatIf, run: Path) -> Iterator[str]:
    """The line of the program to change, and the command that proves the prediction."""
    if found.line:
        yield f"Change  {found.line}"
    if found.settings and set(found.settings) <= set(LOADER):
        yield f"Verify  feedline verify {shlex.quote(str(run))} --set {as_typed(found.settings)} -- SCRIPT ARGS"
    elif found.fix and not found.settings:
        yield f"Verify  feedline verify {shlex.quote(str(run))} --fix {found.fix} -- SCRIPT ARGS"


def show_rate(rate: PredictedRate) -> str:
    """``251 -> 410 samples/s [380, 430]``: as recorded, with the change, and the 95 % interval of that."""
    return f"{number(rate.before)} -> {number(rate.after)} samples/s [{number(rate.low)}, {number(rate.high)}]"


def rates_of_other_runs(varies: tuple[float, float]) -> str:
    """What an interval of a prediction leaves out: how runs without any change differ."""
    low, high = map(number, varies)
    return f"Intervals are for a run like this one; without any change, another may reach {low} to {high} samples/s."


def limit_sentence(found: NextLimit | None) -> str:
    """What would limit the training then, as a sentence; empty where that is not known."""
    return "" if found is None else f"{_LIMITS[found.id].format(rate=number(found.samples_per_s))}."
