"""A search for loader settings in the terminal and as a page."""

from collections.abc import Iterator
from pathlib import Path

from rich.table import Table
from rich.text import Text

from feedline.analysis.formatting import BLANK, count, number, seconds, size
from feedline.analysis.predict.limits import CPUS, PASSES, STEP, WORKERS
from feedline.analysis.predict.search import NEAR, Candidate, Limits, Search, Tuning
from feedline.analysis.report import page
from feedline.analysis.report.console import Console
from feedline.analysis.report.document_text import plain
from feedline.analysis.report.figures.throughput import throughput_by_workers
from feedline.analysis.report.tables import columns
from feedline.cli.settings import as_code
from feedline.cli.whatif.text import limit_sentence, rate_change, rates_of_other_runs
from feedline.profiler.printable import printable_in

_BAR = 22  # characters, of the fastest
_SETTING_NAMES = ("num_workers", "prefetch_factor", "persistent_workers")


def show(tuning: Tuning, console: Console) -> None:
    """Print the search."""
    tuning = printable_in(tuning)
    if tuning.refused is not None:
        console.print(plain(f"No prediction: {tuning.refused.message.rstrip('.')}.", "bold"))
        return
    assert tuning.search is not None
    for title, table in (
        ("Throughput by number of workers", _by_workers(tuning.search)),
        ("Best settings", _best_few(tuning.search)),
    ):
        console.print(Text(title, style="bold underline"))
        console.print(table)
        console.print()
    for line in why_not_more(tuning):
        console.print(plain(line))
    console.print()
    console.print(plain(conclusion(tuning.search), "bold"))
    if tuning.line:
        console.print(plain(f"Change  {tuning.line}"), soft_wrap=True)


def _by_workers(search: Search) -> Table:
    """Return a bar per number of workers; the measured one is marked."""
    table = Table.grid(padding=(0, 2, 0, 0), pad_edge=False)
    for head in ("workers", "samples/s", "interval"):
        table.add_column(Text(head, "dim"), justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.show_header = True
    highest = max(candidate.predicted.after for candidate in search.by_workers)
    for candidate in search.by_workers:
        rate = candidate.predicted
        bar = "█" * max(1, round(_BAR * rate.after / highest))
        mark = (
            f" measured: {number(rate.before)}" if candidate.workers == search.now.workers else ""
        )
        table.add_row(
            str(candidate.workers),
            number(rate.after),
            _interval(candidate),
            Text(bar, "green") + Text(mark, "dim"),
        )
    return table


def _best_few(search: Search) -> Table:
    """Return the chosen settings first, then the fastest others."""
    table = columns(
        "workers", "prefetch", "persistent", "samples/s", "interval", "memory at most", gap=2
    )
    for candidate in search.few:
        cells = [str(candidate.settings.get(name, BLANK)) for name in _SETTING_NAMES]
        memory = BLANK if candidate.memory_bytes is None else size(candidate.memory_bytes)
        table.add_row(
            *cells,
            number(candidate.predicted.after),
            _interval(candidate),
            memory,
            style="bold" if candidate == search.best else "",
        )
    return table


def _interval(candidate: Candidate) -> str:
    """Return ``380 – 430``; "" for what was measured."""
    low, high = number(candidate.predicted.low), number(candidate.predicted.high)
    return "" if low == high else f"{low} {BLANK} {high}"


def why_not_more(tuning: Tuning) -> Iterator[str]:
    """Say what ends the search, what unordered batches would give, and how it was found."""
    search, limits = tuning.search, tuning.limits
    assert search is not None and limits is not None
    yield from filter(None, [_limit(search, limits)])
    yield from (f"{message}." for message in search.rejected)
    if search.left_out is not None:
        yield (
            f"{search.left_out} or more workers and their batches may not fit into "
            f"{_memory(limits)}."
        )
    if search.unpredicted is not None:
        workers, refused = search.unpredicted
        yield f"No prediction for {workers} or more workers: {refused.message.rstrip('.')}."
    if search.unordered is not None:
        rate = search.unordered.predicted
        yield (
            f"in_order=False would give {number(rate.after)} samples/s [{number(rate.low)}, "
            f"{number(rate.high)}]. It changes the order of "
            "batches, and so the course of the training from run to run; it is not part of the "
            "advice."
        )
    if tuning.measured_interval is not None:
        yield rates_of_other_runs(tuning.measured_interval)
    cpus = (
        "on the CPUs as recorded"
        if limits.cpus is None
        else f"on {limits.cpus:g} CPU{'s' * (limits.cpus != 1)}"
    )
    yield (
        f"Replayed {count(search.tried)} settings in {seconds(tuning.took_s)}, up to "
        f"{limits.workers} workers, {cpus}; 95 % intervals. Of "
        f"those within {100 * (1 - NEAR):.0f} % of the best, the one with the fewest workers is "
        f"chosen."
    )


def _limit(search: Search, limits: Limits) -> str:
    """Say why not more workers."""
    best, ended = search.best, search.best.workers == limits.workers
    if search.limit is None:
        return ""
    if not best.workers:
        return "Workers would not help."
    if search.limit.id == STEP:
        return (
            f"More than {_workers(best.workers)} would not help: the rest of the step is then "
            f"the limit."
        )
    if search.limit.id == CPUS:
        rate = number(search.limit.samples_per_s)
        busy = f"all CPUs are busy. With more CPUs, throughput would be about {rate} samples/s."
        return (
            f"The search ended at {_workers(best.workers)}; {busy}"
            if ended
            else f"More than {_workers(best.workers)} would not help, because {busy}"
        )
    if search.limit.id == PASSES:
        rate = number(search.limit.samples_per_s)
        why = (
            f"training waits for the first batch of each epoch; if it did not, throughput would "
            f"be about {rate} samples/s"
        )
        ends = "The search ended at {}" if ended else "More than {} would not help"
        return f"{ends.format(_workers(best.workers))}: {why}."
    if search.limit.id == WORKERS and ended:
        return (
            f"The search ended at {_workers(best.workers)}: more workers may be faster (raise "
            f"--max-workers)."
        )
    return limit_sentence(search.limit)


def _workers(number_of: int) -> str:
    return f"{number_of} worker{'s' * (number_of != 1)}"


def _memory(limits: Limits) -> str:
    parts = [] if limits.memory_bytes is None else [f"{size(limits.memory_bytes)} of memory"]
    parts += [] if limits.shared_bytes is None else [f"{size(limits.shared_bytes)} of /dev/shm"]
    return " or ".join(parts)


def conclusion(search: Search) -> str:
    """Return the advice with its prediction."""
    if not search.changes:
        ordered = " with batches in order" if search.unordered is not None else ""
        if search.no_more:
            return f"Keep {as_code(search.now.settings)}: more workers were tried, and rejected."
        perhaps = any(
            candidate.predicted.after * NEAR >= search.now.predicted.after
            for candidate in search.few
            if candidate != search.now
        )
        faster = "are sure to be faster" if perhaps else "would be more than 2 % faster"
        return (
            f"Keep {as_code(search.now.settings)}: no other settings within the limits "
            f"{faster}{ordered}."
        )
    return f"Set {as_code(search.changes)}: {rate_change(search.best.predicted)}."


def render(tuning: Tuning) -> str:
    """Render the search as a self-contained HTML file, if it found a setting."""
    tuning = printable_in(tuning)
    assert tuning.search is not None
    return page.render(
        Path(__file__).with_name("tune.html"),
        it=tuning.search,
        line=tuning.line,
        advice=conclusion(tuning.search),
        figure=throughput_by_workers(tuning.search),
        remarks=list(why_not_more(tuning)),
        names=_SETTING_NAMES,
        interval=_interval,
        blank=BLANK,
    )
