"""A search for loader settings in the terminal and as a page."""

from collections.abc import Iterator
from pathlib import Path

from feedline.analysis.predict.limits import ALONE, CPUS, PASSES, STEP, WORKERS
from feedline.analysis.predict.search import NEAR, Candidate, Limits, Search, Tuning
from feedline.analysis.report import page
from feedline.analysis.report.document import (
    Bar,
    Bars,
    Document,
    Field,
    Fields,
    Headline,
    Note,
    Table,
)
from feedline.analysis.report.figures.throughput import throughput_by_workers
from feedline.analysis.text.formatting import BLANK, count, rate, seconds, size
from feedline.cli.settings import as_code, as_typed
from feedline.cli.whatif.text import (
    limit_sentence,
    rate_change,
    rates_of_other_runs,
    verify_line,
)
from feedline.profiler.printable import printable_in

_HEADS = ("workers", "prefetch", "persistent", "samples/s", "interval", "memory at most")
_SETTING_NAMES = ("num_workers", "prefetch_factor", "persistent_workers")


def document_of(tuning: Tuning, run: Path) -> Document:
    """Return the search: the advice, then what was tried.

    Args:
        run: the run folder, for the command that proves the advice.
    """
    tuning = printable_in(tuning)
    if tuning.refused is not None:
        return Document((Headline(f"No prediction: {tuning.refused.message.rstrip('.')}."),))
    assert tuning.search is not None and tuning.limits is not None
    lines = []
    if tuning.line:
        lines.append(Field("Change", tuning.line, copied=True))
    if tuning.search.changes and tuning.limits.cpus is None:  # else on CPUs that are not here
        lines.append(verify_line(run, f"--set {as_typed(tuning.search.changes)}"))
    change = [Fields(tuple(lines))] if lines else []
    return Document(
        (
            Headline(_conclusion(tuning.search, tuning.limits)),
            *map(Note, tuning.remarks),
            *change,
            _by_workers(tuning.search),
            _best_few(tuning.search),
            *map(Note, _why_not_more(tuning)),
        )
    )


def _by_workers(search: Search) -> Bars:
    """Return a bar per number of workers; the present one is marked.

    Its bar may be of other settings than the present ones, whose rate is then named.
    """
    highest = max(candidate.predicted.after for candidate in search.by_workers)
    rows = []
    for candidate in search.by_workers:
        now = ""
        if candidate.workers == search.now.workers:
            measured = rate(search.now.predicted.before)  # on the CPUs of the recording
            same = candidate == search.now and rate(candidate.predicted.after) == measured
            now = " (now)" if same else f" (now {measured})"
        figures = (rate(candidate.predicted.after), _interval(candidate))
        share = candidate.predicted.after / highest
        rows.append(Bar(f"{_workers(candidate.workers)}{now}", figures, share, "compute"))
    return Bars(tuple(rows), ("samples/s", "interval"))


def _best_few(search: Search) -> Table:
    """Return the chosen settings first, then the fastest others."""
    rows: list[tuple[str, ...]] = []
    for candidate in search.few:
        cells = [str(candidate.settings.get(name, BLANK)) for name in _SETTING_NAMES]
        memory = BLANK if candidate.memory_bytes is None else size(candidate.memory_bytes)
        rows.append((*cells, rate(candidate.predicted.after), _interval(candidate), memory))
    return Table(tuple(rows), _HEADS, "Best settings", frozenset({3, 4, 5}))


def _interval(candidate: Candidate) -> str:
    """Return ``380 to 430``; "" for what was measured."""
    low, high = rate(candidate.predicted.low), rate(candidate.predicted.high)
    return "" if low == high else f"{low} to {high}"


def _why_not_more(tuning: Tuning) -> Iterator[str]:
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
        unordered = search.unordered.predicted
        yield (
            f"in_order=False would give {rate(unordered.after)} samples/s ({rate(unordered.low)} to "
            f"{rate(unordered.high)}). It is not advised: the order of batches would change from run "
            f"to run."
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
    if not best.workers and search.limit.id != ALONE:
        return "Workers would not help."
    if search.limit.id == STEP:
        return (
            f"More than {_workers(best.workers)} would not help: the rest of the step is then "
            f"the limit."
        )
    if search.limit.id == CPUS:
        possible = rate(search.limit.samples_per_s)
        busy = f"all CPUs are busy. With more CPUs, throughput would be about {possible} samples/s."
        return (
            f"The search ended at {_workers(best.workers)}; {busy}"
            if ended
            else f"More than {_workers(best.workers)} would not help, because {busy}"
        )
    if search.limit.id == PASSES:
        possible = rate(search.limit.samples_per_s)
        why = (
            f"training waits for the first batch of each epoch; if it did not, throughput would "
            f"be about {possible} samples/s"
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


def _conclusion(search: Search, limits: Limits) -> str:
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
    because = _why_slower(search, limits)
    return f"Set {as_code(search.changes)}{because}: {rate_change(search.best.predicted)}."


def _why_slower(search: Search, limits: Limits) -> str:
    """Say which limit forbids the present settings, if the advised ones are slower; "": none does."""
    now, best = search.now, search.best
    if best.predicted.after >= NEAR * now.predicted.after:
        return ""
    if now.workers > limits.workers:
        return ", because --max-workers allows no more"
    if search.left_out is not None and search.left_out <= now.workers:
        return f", because {_workers(now.workers)} may not fit into memory"
    return ""


def render(tuning: Tuning) -> str:
    """Render the search as a self-contained HTML file, if it found a setting."""
    tuning = printable_in(tuning)
    assert tuning.search is not None and tuning.limits is not None
    return page.render(
        Path(__file__).with_name("tune.html"),
        it=tuning.search,
        line=tuning.line,
        advice=_conclusion(tuning.search, tuning.limits),
        conditions=tuning.remarks,
        figure=throughput_by_workers(tuning.search),
        remarks=list(_why_not_more(tuning)),
        names=_SETTING_NAMES,
        interval=_interval,
        blank=BLANK,
    )
