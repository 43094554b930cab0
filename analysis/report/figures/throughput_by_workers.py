"""Throughput against the number of workers: what is predicted with its band, and what was measured."""

from markupsafe import Markup

from feedline.analysis.formatting import counted, number
from feedline.analysis.predict.search import Candidate, Search
from feedline.analysis.report.figures.axis import count_columns, count_rows, round_up
from feedline.analysis.report.figures.svg import WIDTH, figure, line_path, percent, stretched, tag

_HEIGHT, _AXIS = 220, 36
_EDGE = 0.04  # room left and right of the points, as a share of the width


def workers(search: Search) -> Markup:
    """A line through the predictions in the band of their intervals; the ring is the setting to take, the dot the measured one."""
    drawn = search.by_workers
    most = max(1, drawn[-1].workers)
    top = round_up(max([search.now.predicted.before, *(one.predicted.high for one in drawn)]))
    places = [_place(one.workers, most) for one in drawn]

    def y(rate: float) -> float:
        return _HEIGHT * (1 - rate / top)

    lows, highs = ([(x, y(rate)) for x, rate in zip(places, rates)] for rates in _band(drawn))
    band = tag("path", class_="band", fill_opacity=0.5, d=f"{line_path([*highs, *reversed(lows)])}Z")
    line = tag("path", class_="line", d=line_path([(x, y(one.predicted.after)) for x, one in zip(places, drawn)]))
    parts = [*count_rows(top, _HEIGHT), stretched(WIDTH, _HEIGHT, band, line)]
    parts += [_predicted(one, x, y(one.predicted.after), one.workers == search.best.workers) for x, one in zip(places, drawn)]
    parts.append(_measured(search.now, _place(min(search.now.workers, most), most), y(search.now.predicted.before)))
    parts += count_columns([one.workers for one in drawn], places, _HEIGHT, "workers", 2 * len(drawn))
    label = "Samples per second by number of workers. Left and right arrow keys read out the predictions, then what was measured."
    return figure(parts, _HEIGHT + _AXIS, label)


def _place(number_of: int, most: int) -> float:
    return _EDGE + (1 - 2 * _EDGE) * number_of / most


def _band(drawn: list[Candidate]) -> tuple[list[float], list[float]]:
    return [one.predicted.low for one in drawn], [one.predicted.high for one in drawn]


def _predicted(one: Candidate, x: float, y: float, chosen: bool) -> Markup:
    rate = one.predicted
    tip = f"{_named(one.workers)}, predicted: {number(rate.after)} samples/s ({number(rate.low)} to {number(rate.high)})"
    ring = tag("circle", class_="ring", cx=percent(x), cy=y, r=6 if chosen else 3.5)
    hit = tag("circle", class_="hit", cx=percent(x), cy=y, r=12)
    return tag("g", ring, hit, class_="point", data_tip=f"{tip}, the advice" if chosen else tip)


def _measured(now: Candidate, x: float, y: float) -> Markup:
    dot = tag("circle", class_="dot", cx=percent(x), cy=y, r=4)
    hit = tag("circle", class_="hit", cx=percent(x), cy=y, r=9)
    return tag("g", dot, hit, class_="point", data_tip=f"{_named(now.workers)}, measured: {number(now.predicted.before)} samples/s")


def _named(workers_of: int) -> str:
    return counted(workers_of, "worker") if workers_of else "no workers"
