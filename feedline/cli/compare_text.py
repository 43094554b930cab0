"""A comparison of loaders in the terminal: three tables and a recommendation, 80 columns wide if names allow it."""

from collections.abc import Iterable, Sequence

from rich.table import Table
from rich.text import Text

from feedline.analysis.formatting import BLANK, Scale, number, seconds
from feedline.analysis.report.console import Console
from feedline.analysis.report.tables import columns, plain
from feedline.pipelines.compare.comparison import Comparison, LoaderRow, median_interval, rank_loaders
from feedline.pipelines.translate.difference import LibraryDifference
from feedline.profiler.message import few
from feedline.profiler.printable import printable_in

_NAMED = 3  # files named per kind of problem
STAGES = ("read", "decode", "augment", "transport")


def show(comparison: Comparison, console: Console) -> None:
    """Print it."""
    comparison = printable_in(comparison)
    console.print(plain(about(comparison)))
    for kind, paths in comparison.left_out.items():
        console.print(plain(f"left out, {kind.replace('_', ' ')}: {len(paths)} ({few(paths, _NAMED)})"), soft_wrap=True)
    for title, table in _tables(comparison):
        console.print()
        console.print(Text(title, style="bold underline"))
        console.print(table)
    for remark in [*remarks(comparison.rows), *operation_remarks(comparison.operations)]:
        console.print(plain(f"- {remark}"))
    console.print()
    console.print(plain(comparison.choice, "bold"))
    if comparison.lines:
        console.print(Text("These lines run as they are, from this folder:", "dim"))
        for line in comparison.lines:
            console.print(plain(f"    {line}".rstrip()), soft_wrap=True)


def about(comparison: Comparison) -> str:
    """What was compared, and how."""
    settings = comparison.settings
    return (
        f"{comparison.photos:,} images of {comparison.sample_bytes / 1000:,.0f} kB, batches of {settings['batch_size']}, "
        f"{settings['workers']} workers or threads on {comparison.cores:g} cores, to {settings['device']}. "
        f"Page cache {comparison.cache}. {settings['rounds']} alternating rounds."
    )


def _tables(comparison: Comparison) -> Iterable[tuple[str, Table]]:
    """(title, table) of each part that has content."""
    measured = comparison.measured
    if measured:
        yield "Loaders", rates(comparison)
        if any(row.stages for row in measured):
            yield "CPU per sample of each step, called alone", steps(measured)
        yield "Labels, and gray-level difference (of 255) from pillow-v1", _equality(measured)
    if _backends(comparison.operations):
        yield "Gray-level difference from torchvision on PIL, per operation: mean (largest)", operations(comparison.operations)


def rates(comparison: Comparison) -> Table:
    """Samples/s and their cost; the fastest first, with its place."""
    fed = comparison.compute is not None
    table = columns("loader", "", "samples/s", "(95 %)", "CPU ms", "cores", "1st batch", *(["model gets"] if fed else []))
    for place, row in rank_loaders(comparison.measured):
        low, high = median_interval(row.rates)
        spread = f"({number(low)}{BLANK}{number(high)})" if not row.is_upper_bound else "(upper bound)"
        figures = [str(place), number(row.samples_per_s), spread, f"{1000 * row.cpu_s:.2f}", f"{row.cores:.1f}", seconds(row.first_batch_s)]
        if fed:
            figures.append(f"{number(row.feeds.samples_per_s)} {row.feeds.limit}" if row.feeds else BLANK)
        table.add_row(plain(row.name), *figures)
    if comparison.compute is not None:
        step = comparison.compute
        table.add_row(
            "the model alone", "", number(1 / step.step_s), "", f"{1000 * step.cpu_s:.2f}", f"{step.cpu_s / step.step_s:.1f}", "", ""
        )
    return table


def steps(rows: Sequence[LoaderRow]) -> Table:
    """CPU time by step."""
    scale = Scale.column(max(getattr(row.stages, stage) for row in rows if row.stages for stage in STAGES))
    table = columns("loader", *(f"{stage} {scale.unit}" for stage in STAGES))
    for row in rows:
        if row.stages:
            table.add_row(plain(row.name), *(scale(getattr(row.stages, stage)) for stage in STAGES))
        elif row.stages_why:
            table.add_row(plain(row.name), *[BLANK] * len(STAGES))
    return table


def _equality(rows: Sequence[LoaderRow]) -> Table:
    """Differences from pillow-v1, in gray levels of 255."""
    table = columns("loader", "each once", "mean", "worst image", "largest")
    for row in rows:
        once = "yes" if row.epoch and not row.epoch.wrong else "NO"
        off = (row.pixels.mean, row.pixels.largest_mean, row.pixels.max) if row.pixels else (None,) * 3
        table.add_row(plain(row.name), once, *(BLANK if one is None else f"{one:.2f}" for one in off))
    return table


def operations(found: Sequence[LibraryDifference]) -> Table:
    """A row per operation, a column per installed library."""
    backends = _backends(found)
    table = columns("operation", *backends)
    for name in dict.fromkeys(one.operation for one in found if one.backend in backends):
        cells = {one.backend: BLANK if one.mean is None else f"{one.mean:.2f} ({one.max:.0f})" for one in found if one.operation == name}
        table.add_row(plain(name), *(cells.get(backend, "") for backend in backends))
    return table


def _backends(found: Sequence[LibraryDifference]) -> list[str]:
    """Libraries that are installed."""
    return [name for name in dict.fromkeys(one.backend for one in found) if len([one for one in found if one.backend == name]) > 1]


def operation_remarks(found: Sequence[LibraryDifference]) -> Iterable[str]:
    """Why a library cannot do an operation, or does it differently."""
    for one in found:
        if one.message:
            yield f"{one.backend}, {one.operation}: {one.message}"


def remarks(rows: Sequence[LoaderRow]) -> Iterable[str]:
    """Remarks below the tables: reasons, faults, and missing operations."""
    for row in rows:
        if row.why:
            yield f"{row.name}: not measured: {row.why}"
            continue
        if row.epoch and row.epoch.wrong:
            yield f"{row.name}: {row.epoch.wrong}"
        if row.pixels and row.pixels.outside:
            yield f"{row.name}: its images differ: {row.pixels.outside}"
        if row.pixels_why:
            yield f"{row.name}: images not compared: {row.pixels_why}"
        if row.stages_why:
            yield f"{row.name}: steps not timed: {row.stages_why}"
    for operation in dict.fromkeys(operation for row in rows for operation in row.missing):
        yield f"not supported by {', '.join(row.name for row in rows if operation in row.missing)}: {operation}"
