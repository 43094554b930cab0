"""What ``feedline compare`` says: a document, a page, and a program with the best loader."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from markupsafe import Markup

from feedline.analysis.report import page, phrases
from feedline.analysis.report.document import (
    Block,
    Code,
    Document,
    Headline,
    Items,
    Note,
    Table,
)
from feedline.analysis.report.figures.axis import percent, tag
from feedline.analysis.text import formatting
from feedline.analysis.text.formatting import BLANK, Scale, number, seconds
from feedline.pipelines.compare.comparison_result import (
    MAX_GPU_OTHERS,
    MIN_INTERVAL_ROUNDS,
    MIN_ROUNDS,
    Comparison,
    LoaderRow,
    median_interval,
    rank_loaders,
)
from feedline.pipelines.translate.difference import LibraryDifference
from feedline.profiler.message import few
from feedline.profiler.printable import printable_in

_MAX_NAMED_FILES = 3  # files named per kind of problem
_SAMPLE_STEPS = ("read", "decode", "augment", "transport")
_ROW, _BAR = 40, 14  # px; a bar stands below its name
_COLORS = {
    "read": "read",
    "decode": "decode",
    "augment": "augment",
    "transport": "transport",
    "rest": "other",
}
#: What is compared with where no transform is named (compare.the_transform).
_USUAL_TRANSFORM = """from torchvision import transforms

transform = transforms.Compose([
    transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
    transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
])"""
_PROGRAM = """{transform}

from feedline.pipelines.loaders.take import ComparedLoader

if __name__ == "__main__":
    loader = ComparedLoader({name!r}, {data!r}, transform, batch_size={batch_size}, workers={workers})
    for images, labels in loader:  # one epoch: replace the loop over your DataLoader with this one
        ...
"""


def document_of(comparison: Comparison) -> Document:
    """Return the comparison: the choice and its program, tables, and remarks."""
    return Document(tuple(_blocks(printable_in(comparison))))


def _blocks(comparison: Comparison) -> Iterable[Block]:
    yield Headline(*phrases.opening(comparison.choice))
    if comparison.lines:
        yield Code(tuple(comparison.lines), "These lines run as they are, from this folder:")
    yield Note(_about(comparison))
    if measured := comparison.measured:
        yield _rate_table(comparison)
        if any(row.stages for row in measured):
            yield _step_table(measured)
        yield _equality_table(measured)
    if _backends(comparison.operations):
        yield _operation_table(comparison.operations)
    if remarks := tuple(_remarks(comparison)):
        yield Items(remarks, "Remarks")
    if comparison.left_out:
        yield Items(tuple(_left_out(comparison.left_out)), "Files left out")


def _left_out(files: Mapping[str, Sequence[str]]) -> Iterable[str]:
    for kind, paths in files.items():
        yield f"{kind.replace('_', ' ')}: {len(paths)} ({few(paths, _MAX_NAMED_FILES)})"


def _about(comparison: Comparison) -> str:
    """Return what was compared, and how."""
    settings = comparison.settings
    return (
        f"{comparison.photos:,} images of {comparison.sample_bytes / 1000:,.0f} kB, batches of "
        f"{settings['batch_size']}, "
        f"{settings['workers']} workers or threads on {comparison.cores:g} cores, to "
        f"{settings['device']}. "
        f"{_page_cache(comparison)}. {settings['rounds']} alternating rounds."
    )


def _page_cache(comparison: Comparison) -> str:
    """Return the state of the page cache, as far as it is known."""
    if comparison.cache == "partly cached":
        return f"Images only partly cached ({formatting.percent(comparison.cached)})"
    unchecked = " (not checked)" if comparison.cached is None else ""
    return f"Page cache {comparison.cache}{unchecked}"


def _figures(title: str, rows: Iterable[tuple[str, ...]], heads: tuple[str, ...]) -> Table:
    """Return a table whose columns are figures, all but the first."""
    return Table(tuple(rows), heads, title, frozenset(range(1, len(heads))))


def _rate_table(comparison: Comparison) -> Table:
    """Return samples/s and their cost; the fastest first, with its place."""
    fed = ["model gets"] if comparison.compute is not None else []
    spread = f"({_spread_name(comparison, '95 %', 'range')})"
    heads = ("loader", "place", "samples/s", spread, "CPU ms", "cores", "1st batch", *fed)
    rows = [
        (
            row.name,
            BLANK if row.is_upper_bound else str(place),
            number(row.samples_per_s),
            "(upper bound)" if row.is_upper_bound else _between(*median_interval(row.rates)),
            f"{1000 * row.cpu_s:.2f}",
            f"{row.cores:.1f}",
            seconds(row.first_batch_s),
            *(
                f"{number(row.feeds.samples_per_s)} {row.feeds.limit}" if row.feeds else BLANK
                for _ in fed
            ),
        )
        for place, row in rank_loaders(comparison.measured)
    ]
    if (step := comparison.compute) is not None:
        cpu, cores = f"{1000 * step.cpu_s:.2f}", f"{step.cpu_s / step.step_s:.1f}"
        rows.append(("the model alone", "", number(1 / step.step_s), "", cpu, cores, "", ""))
    return _figures("Loaders", rows, heads)


def _spread_name(comparison: Comparison, interval: str, spread: str) -> str:
    """Return what the two figures beside a median are: its interval, or of few rounds their range."""
    rounds = len(comparison.measured[0].parts)
    return interval if rounds >= MIN_INTERVAL_ROUNDS else spread


def _between(low: float, high: float) -> str:
    return f"({number(low)} to {number(high)})"


def _step_table(rows: Sequence[LoaderRow]) -> Table:
    """Return the CPU time of each step."""
    scale = Scale.column(
        max(getattr(row.stages, stage) for row in rows if row.stages for stage in _SAMPLE_STEPS)
    )
    cells = [
        (
            row.name,
            *(
                scale(getattr(row.stages, stage)) if row.stages else BLANK
                for stage in _SAMPLE_STEPS
            ),
        )
        for row in rows
        if row.stages or row.stages_why
    ]
    heads = ("loader", *(f"{stage} {scale.unit}" for stage in _SAMPLE_STEPS))
    return _figures("CPU time per sample by stage, each timed alone", cells, heads)


def _equality_table(rows: Sequence[LoaderRow]) -> Table:
    """Return differences from pillow-v1, in gray levels of 255."""
    cells = []
    for row in rows:
        once = "yes" if row.epoch and not row.epoch.wrong else "NO"
        pixels = row.pixels
        off = (pixels.mean, pixels.largest_mean, pixels.max) if pixels else (None,) * 3
        shown = (BLANK if difference is None else f"{difference:.2f}" for difference in off)
        cells.append((row.name, once, *shown))
    title = "Same data? Difference from pillow-v1 in gray levels (0 to 255)"
    heads = ("loader", "each sample once", "mean", "worst image", "worst pixel")
    return _figures(title, cells, heads)


def _operation_table(differences: Sequence[LibraryDifference]) -> Table:
    """Return a row per operation, a column per installed library."""
    backends = _backends(differences)
    rows = []
    for name in dict.fromkeys(
        difference.operation for difference in differences if difference.backend in backends
    ):
        cells = {
            difference.backend: BLANK
            if difference.mean is None
            else f"{difference.mean:.2f} ({difference.max:.0f})"
            for difference in differences
            if difference.operation == name
        }
        rows.append((name, *(cells.get(backend, "") for backend in backends)))
    title = "Gray-level difference from torchvision on PIL, per operation: mean (largest)"
    return _figures(title, rows, ("operation", *backends))


def _backends(differences: Sequence[LibraryDifference]) -> list[str]:
    """Return the libraries that are installed."""
    return [
        name
        for name in dict.fromkeys(difference.backend for difference in differences)
        if len([difference for difference in differences if difference.backend == name]) > 1
    ]


def _operation_remarks(differences: Sequence[LibraryDifference]) -> Iterable[str]:
    """Say why a library cannot do an operation, or does it differently."""
    for difference in differences:
        if difference.message:
            yield f"{difference.backend}, {difference.operation}: {difference.message}"


def _remarks(comparison: Comparison) -> Iterable[str]:
    """Return the remarks below the tables: on loaders, the model, and operations."""
    yield from _loader_remarks(comparison.rows)
    if (comparison.gpu_others or 0.0) > MAX_GPU_OTHERS:
        yield (
            f"the GPU: other programs keep it busy {formatting.percent(comparison.gpu_others)} of "
            f"the time, so the loaders' GPU time is unknown"
        )
    if comparison.compute_why:
        yield f"the model: not measured: {comparison.compute_why}"
    if comparison.operations_why:
        yield f"operations: not compared: {comparison.operations_why}"
    yield from _operation_remarks(comparison.operations)


def _loader_remarks(rows: Sequence[LoaderRow]) -> Iterable[str]:
    """Return reasons, faults, and missing operations."""
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
            yield f"{row.name}: stages not timed: {row.stages_why}"
    for operation in dict.fromkeys(operation for row in rows for operation in row.missing):
        yield (
            f"not supported by "
            f"{', '.join(row.name for row in rows if operation in row.missing)}: {operation}"
        )


def render(comparison: Comparison) -> str:
    """Render the comparison as a self-contained HTML file: two figures and their tables."""
    comparison = printable_in(comparison)
    ranked = rank_loaders(comparison.measured)
    rows = [row for _, row in ranked]
    return page.render(
        Path(__file__).with_name("compare.html"),
        it=comparison,
        rows=rows,
        ranked=ranked,
        about=_about(comparison),
        remarks=list(_remarks(comparison)),
        rates=_rate_figure(rows, comparison),
        costs=_cost_figure(rows),
        colors=_COLORS,
        blank=formatting.BLANK,
        interval=median_interval,
        spread=_spread_name(comparison, "95 % interval", "range of the rounds") if rows else "",
        places=_how_placed(len(rows[0].parts)) if rows else "",
    )


def _how_placed(rounds: int) -> str:
    """Say when loaders share a place."""
    apart = "unless their intervals lie apart and one is more than 10 % faster in a significant "
    few = "unless one is more than 10 % faster in each round than the other in any"
    return f"{apart}majority of rounds (sign test)" if rounds >= MIN_ROUNDS else few


def _rate_figure(rows: list[LoaderRow], comparison: Comparison) -> Markup | None:
    """Draw samples/s by loader.

    A bar is the median, a line its interval; the model's own speed is a line across all.
    """
    shown = [row for row in rows if not row.is_upper_bound]
    if not shown:
        return None
    model = 1 / comparison.compute.step_s if comparison.compute else None
    longest = max(median_interval(row.rates)[1] for row in shown)
    drawn = model if model is not None and model <= 3 * longest else None
    longest = max(longest, drawn or 0.0)
    parts = [
        part
        for index, row in enumerate(shown)
        for part in _rate_bar(row, y=index * _ROW, longest=longest)
    ]
    height = _ROW * len(shown)
    if drawn is not None:
        x = percent(drawn / longest)
        parts.append(tag("line", class_="cursor", x1=x, x2=x, y1=0, y2=height))
        side = "end" if drawn > longest / 2 else "start"
        parts.append(
            tag("text", f"the model alone: {number(drawn)}", x=x, y=height + 16, text_anchor=side)
        )
        height += 22
    label = "Samples per second by loader"
    return tag(
        "svg",
        *parts,
        width="100%",
        height=height,
        role="img",
        tabindex=0,
        class_="marks",
        aria_label=label,
    )


def _rate_bar(row: LoaderRow, y: int, longest: float) -> list[Markup]:
    """Draw a loader's name and its bar.

    Args:
        row: the loader.
        y: top of its row, px.
        longest: samples/s at the right edge.
    """
    low, high = median_interval(row.rates)
    description = (
        f"{number(row.samples_per_s)} samples/s ({number(low)} to {number(high)}), "
        f"{1000 * row.cpu_s:.2f} ms of CPU per sample"
    )
    bar = tag(
        "rect",
        class_="part cpu",
        x=0,
        y=y + 20,
        width=percent(row.samples_per_s / longest),
        height=_BAR,
    )
    middle = y + 20 + _BAR / 2
    whisker = tag(
        "line",
        class_="median",
        x1=percent(low / longest),
        x2=percent(high / longest),
        y1=middle,
        y2=middle,
    )
    return [
        tag("text", f"{row.name}: {number(row.samples_per_s)}", x=0, y=y + 14),
        tag("g", bar, whisker, class_="c-forward", data_tip=f"{row.name}: {description}"),
    ]


def _cost_figure(rows: list[LoaderRow]) -> Markup | None:
    """Draw CPU time per sample: the steps, and the rest that the running loader spent."""
    shown = [row for row in rows if not row.is_upper_bound]
    if not shown:
        return None
    split = {row.name: _shares(row) for row in shown}
    longest = max(sum(parts.values()) for parts in split.values())
    scale = Scale.column(longest)
    parts: list[Markup] = []
    for index, row in enumerate(shown):
        y, start = index * _ROW, 0.0
        parts.append(tag("text", f"{row.name}: {scale.full(row.cpu_s)}", x=0, y=y + 14))
        for stage, spent in split[row.name].items():
            place = {
                "x": percent(start / longest),
                "width": percent(spent / longest),
                "y": y + 20,
                "height": _BAR,
            }
            parts.append(
                tag(
                    "rect",
                    class_=f"segment c-{_COLORS[stage]}",
                    data_tip=f"{row.name}, {stage}: {scale.full(spent)}",
                    **place,
                )
            )
            start += spent
    label = "CPU time of one sample by loader and step"
    return tag(
        "svg",
        *parts,
        width="100%",
        height=_ROW * len(shown),
        role="img",
        tabindex=0,
        class_="marks",
        aria_label=label,
    )


def _shares(row: LoaderRow) -> dict[str, float]:
    """Return the seconds of each step.

    ``rest`` is what the running loader spent in addition, or everything if the steps are unknown.
    """
    known = {stage: getattr(row.stages, stage) for stage in _SAMPLE_STEPS} if row.stages else {}
    return {**known, "rest": max(0.0, row.cpu_s - sum(known.values()))}


def program_lines(
    name: str, data: Path, spec: str | None, batch_size: object, workers: object
) -> list[str]:
    """Return a program that trains with a loader, in the folder that ``compare`` was started in.

    Args:
        name: the loader.
        data: image folder.
        spec: ``module:name`` of the user's transform; None: the usual one.
        batch_size: images per batch.
        workers: worker processes or threads.
    """
    return _PROGRAM.format(
        transform=_transform(spec),
        name=name,
        data=str(data),
        batch_size=batch_size,
        workers=workers,
    ).splitlines()


def _transform(spec: str | None) -> str:
    """Return the statements that leave ``transform``."""
    if spec is None:
        return _USUAL_TRANSFORM
    from feedline.pipelines import user_modules

    module, _, name = spec.partition(":")
    return (
        f"import {module}\n\ntransform = "
        f"{module}.{name}{'()' if user_modules.makes_transforms(spec) else ''}"
    )
