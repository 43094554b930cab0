"""A comparison of loaders as a self-contained HTML file: two figures and their tables."""

from pathlib import Path

from markupsafe import Markup

from feedline.analysis import formatting
from feedline.analysis.formatting import Scale, number
from feedline.analysis.report import page
from feedline.analysis.report.figures.svg import percent, tag
from feedline.cli import compare_text
from feedline.pipelines.compare.comparison import Comparison, LoaderRow, median_interval, rank_loaders
from feedline.profiler.printable import printable_in

_HERE = Path(__file__).parent
_ROW, _BAR = 40, 14  # px; a bar stands below its name
_COLORS = {"read": "read", "decode": "decode", "augment": "augment", "transport": "transport", "rest": "other"}


def render(comparison: Comparison) -> str:
    """The whole page."""
    comparison = printable_in(comparison)
    ranked = rank_loaders(comparison.measured)
    rows = [row for _, row in ranked]
    return page.render(
        _HERE / "compare.html",
        it=comparison,
        rows=rows,
        ranked=ranked,
        about=compare_text.about(comparison),
        remarks=[*compare_text.remarks(comparison.rows), *compare_text.operation_remarks(comparison.operations)],
        rates=_rates(rows, comparison),
        costs=_costs(rows),
        colors=_COLORS,
        blank=formatting.BLANK,
        interval=median_interval,
    )


def _rates(rows: list[LoaderRow], comparison: Comparison) -> Markup | None:
    """Samples/s: a bar for the median, a line for its 95 % interval; the model's own speed as a line across all."""
    shown = [row for row in rows if not row.is_upper_bound]
    if not shown:
        return None
    model = 1 / comparison.compute.step_s if comparison.compute else None
    longest = max(median_interval(row.rates)[1] for row in shown)
    drawn = model if model is not None and model <= 3 * longest else None
    longest = max(longest, drawn or 0.0)
    parts: list[Markup] = []
    for index, row in enumerate(shown):
        y = index * _ROW
        low, high = median_interval(row.rates)
        said = f"{number(row.samples_per_s)} samples/s ({number(low)} to {number(high)}), {1000 * row.cpu_s:.2f} ms of CPU per sample"
        bar = tag("rect", class_="part cpu", x=0, y=y + 20, width=percent(row.samples_per_s / longest), height=_BAR)
        middle = y + 20 + _BAR / 2
        whisker = tag("line", class_="median", x1=percent(low / longest), x2=percent(high / longest), y1=middle, y2=middle)
        parts.append(tag("text", f"{row.name}: {number(row.samples_per_s)}", x=0, y=y + 14))
        parts.append(tag("g", bar, whisker, class_="c-forward", data_tip=f"{row.name}: {said}"))
    height = _ROW * len(shown)
    if drawn is not None:
        x = percent(drawn / longest)
        parts.append(tag("line", class_="cursor", x1=x, x2=x, y1=0, y2=height))
        side = "end" if drawn > longest / 2 else "start"
        parts.append(tag("text", f"the model alone: {number(drawn)}", x=x, y=height + 16, text_anchor=side))
        height += 22
    label = "Samples per second by loader"
    return tag("svg", *parts, width="100%", height=height, role="img", tabindex=0, class_="marks", aria_label=label)


def _costs(rows: list[LoaderRow]) -> Markup | None:
    """CPU time per sample: the steps side by side, and the rest that the running loader spent."""
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
            place = {"x": percent(start / longest), "width": percent(spent / longest), "y": y + 20, "height": _BAR}
            parts.append(tag("rect", class_=f"segment c-{_COLORS[stage]}", data_tip=f"{row.name}, {stage}: {scale.full(spent)}", **place))
            start += spent
    label = "CPU time of one sample by loader and step"
    return tag("svg", *parts, width="100%", height=_ROW * len(shown), role="img", tabindex=0, class_="marks", aria_label=label)


def _shares(row: LoaderRow) -> dict[str, float]:
    """Seconds of each step; ``rest`` is what the running loader spent in addition, or everything if the steps are unknown."""
    known = {stage: getattr(row.stages, stage) for stage in compare_text.STAGES} if row.stages else {}
    return {**known, "rest": max(0.0, row.cpu_s - sum(known.values()))}
