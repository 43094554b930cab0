"""What a sample costs in a worker: one bar per stage, split into CPU, waiting for a CPU, and blocked."""

from markupsafe import Markup

from feedline.analysis.formatting import Scale
from feedline.analysis.measure.model import Cost, Workers
from feedline.analysis.report.figures.svg import cut, figure, percent, tag
from feedline.analysis.report.palette import Palette

_ROW, _BAR = 24, 14  # px


def sample_cost(workers: Workers, palette: Palette) -> Markup | None:
    """Bars share one scale; the largest stage fills the width. "total" is left to the table: it would shrink every other bar."""
    costs = {stage: cost for stage, cost in workers.per_sample.items() if stage != "total"}
    longest = max((cost.wall_s for cost in costs.values()), default=0.0)
    if not longest > 0:
        return None
    scale = Scale.column(max(cost.wall_s for cost in workers.per_sample.values()))
    rows: list[Markup] = []
    for index, (stage, cost) in enumerate(costs.items()):
        y = index * _ROW
        tip = f"{stage}: {words(cost, scale)}"
        bars = _bars(cost, longest, y + (_ROW - _BAR) / 2)
        rows.append(tag("text", cut(stage, 12), class_="tick y name", x=-8, y=y + _ROW / 2 + 4))
        rows.append(tag("g", *bars, class_=palette.css_class(stage), data_tip=tip))
        rows.append(tag("text", scale.full(cost.wall_s), class_="tick amount", x=percent(cost.wall_s / longest), dx=6, y=y + _ROW / 2 + 4))
    label = "Wall time of one sample, by stage"
    return figure(rows, _ROW * len(costs), label)


def is_split(cost: Cost) -> bool:
    """Whether all three parts were measured."""
    return None not in (cost.cpu_s, cost.runqueue_s, cost.blocked_s)


def words(cost: Cost, scale: Scale) -> str:
    """One line: ``4.20 ms = 3.90 CPU + 0.20 waiting for CPU + 0.10 blocked``."""
    if not is_split(cost):
        return f"{scale.full(cost.wall_s)}, not split"
    cpu, runqueue, blocked = scale(cost.cpu_s), scale(cost.runqueue_s), scale(cost.blocked_s)
    return f"{scale.full(cost.wall_s)} = {cpu} CPU + {runqueue} waiting for CPU + {blocked} blocked"


def _bars(cost: Cost, longest: float, y: float) -> list[Markup]:
    parts = [("cpu", cost.cpu_s), ("runqueue", cost.runqueue_s), ("blocked", cost.blocked_s)]
    if not is_split(cost):
        parts = [("unsplit", cost.wall_s)]
    bars: list[Markup] = []
    start, end = 0.0, cost.wall_s / longest
    for kind, seconds in parts:
        # clocks that are read one after another can add up to more than the wall time
        width = min(max(0.0, seconds or 0.0) / longest, end - start)
        if width > 0:
            place = {"x": percent(start), "y": y, "width": percent(width), "height": _BAR}
            bars.append(tag("rect", class_=f"part {kind}", **place))
            if kind == "runqueue":
                bars.append(tag("rect", class_="hatch", fill="url(#hatch)", **place))
        start += width
    return bars
