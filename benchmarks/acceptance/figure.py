"""The acceptance table as a figure: test accuracy of every arm, beside the source table."""

from collections.abc import Callable

from markupsafe import Markup

from acceptance.claims import p_text
from acceptance.result import Row, Table
from acceptance.text import test
from feedline.analysis.report.figures.axis import percent, tag

#: letter -> percent: CIFAR-10, 12 epochs, one GPU against eight; how often each was trained is not
#: known.
SOURCE = {"A": 71.0, "B": 44.0, "C": 64.0, "E": 65.0, "H": 81.0}
ROW, TOP, BOTTOM = 28, 6, 40  # px: of a row; above and below all rows
NAMES, FIGURES = 0.34, 0.12  # of the width, left and right of the marks
WIDTH, MARGIN = 760, 24  # px, of the figure alone
LIGHT = "--bg:#fff;--ink:#1b1d21;--quiet:#5c626c;--grid:#e9ebee;--total:#9aa1ab;--ours:#1d5fbf;--source:#b45f06"
DARK = "--bg:#15171a;--ink:#e3e5e8;--quiet:#9ba2ad;--grid:#26292e;--total:#6d747e;--ours:#7fb2ff;--source:#f0b85a"
STYLE = f"""
:root{{{LIGHT}}}
@media (prefers-color-scheme:dark){{:root{{{DARK}}}}}
text{{font:12px system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;fill:var(--ink)}}
.tick{{fill:var(--quiet);font-size:11.5px}}.tick.x{{text-anchor:middle}}.grid{{stroke:var(--grid)}}.axis{{stroke:var(--total)}}
"""
#: For marks that only this figure has.
MARKS = """
.ours .shape,.ours .sd{stroke:var(--ours)}.ours .shape{stroke-width:1.25;stroke-opacity:.6}.ours .sd{stroke-width:3}
.ours .mean{fill:var(--ours)}.ours .seed{fill:var(--ours);fill-opacity:.35}.ours .figure{fill:var(--ink);text-anchor:end}
.source .shape{stroke:var(--source);stroke-width:1.25;stroke-dasharray:4 3;stroke-opacity:.8}
.source .mean{fill:var(--bg);stroke:var(--source);stroke-width:2}
.row:hover .hit,.row.at .hit{fill:var(--ink);fill-opacity:.05}.hit{fill:transparent}
"""


def standalone(table: Table) -> str:
    """The figure as a file, for light and dark backgrounds."""
    height = _height(table) + 2 * MARGIN + 20
    body = tag(
        "svg",
        *_marks(table),
        x=MARGIN,
        y=MARGIN + 20,
        width=WIDTH - 2 * MARGIN,
        height=_height(table),
        overflow="visible",
    )
    keys = tag("g", *_keys(), transform=f"translate({MARGIN} {MARGIN})")
    title = tag("title", _label(table))
    style = tag("style", Markup(STYLE + MARKS))
    paper = tag("rect", width="100%", height="100%", style="fill:var(--bg)")
    box = {
        "xmlns": "http://www.w3.org/2000/svg",
        "viewBox": f"0 0 {WIDTH} {height}",
        "width": WIDTH,
        "height": height,
    }
    return f"{tag('svg', title, style, paper, keys, body, **box)}\n"


def _label(table: Table) -> str:
    seeds = len(table.seeds)
    return f"Test accuracy by arm, {seeds} seeds on MNIST-1D, beside the source table on CIFAR-10"


def _height(table: Table) -> int:
    return TOP + ROW * len(table.rows) + BOTTOM


def _keys() -> list[Markup]:
    """What the marks mean, in a line."""
    ours = tag("g", tag("circle", class_="mean", cx=5, cy=0, r=4.5), class_="ours")
    seed = tag("g", tag("circle", class_="seed", cx=265, cy=0, r=3), class_="ours")
    source = tag("g", tag("circle", class_="mean", cx=335, cy=0, r=4.5), class_="source")
    return [
        ours,
        tag("text", "here: MNIST-1D, mean and deviation", x=16, y=4),
        seed,
        tag("text", "a seed", x=274, y=4),
        source,
        tag("text", "the source table: CIFAR-10, 12 epochs, one GPU against eight", x=346, y=4),
    ]


def _marks(table: Table) -> list[Markup]:
    shown = [run.test for row in table.rows for run in row.runs] + [
        SOURCE[row.arm.letter] for row in table.rows if row.arm.letter in SOURCE
    ]
    low = 10 * (min(shown) // 10)

    def x(accuracy: float) -> str:
        return percent(NAMES + (1 - NAMES - FIGURES) * (accuracy - low) / (100 - low))

    bottom = TOP + ROW * len(table.rows)
    parts = []
    for tick in range(int(low), 101, 10):
        parts.append(tag("line", class_="grid", x1=x(tick), x2=x(tick), y1=TOP, y2=bottom))
        parts.append(tag("text", str(tick), class_="tick x", x=x(tick), y=bottom + 16))
    parts.append(tag("line", class_="axis", x1=x(low), x2=x(100), y1=bottom, y2=bottom))
    parts += [
        tag("text", "test accuracy, percent", class_="tick x", x=x((low + 100) / 2), y=bottom + 33)
    ]
    places = {row.arm.letter: TOP + ROW * index + ROW // 2 for index, row in enumerate(table.rows)}
    told = [row for row in table.rows if row.arm.letter in SOURCE]
    parts.append(_shape("ours", [(x(row.test_mean), places[row.arm.letter]) for row in told]))
    parts.append(
        _shape("source", [(x(SOURCE[row.arm.letter]), places[row.arm.letter]) for row in told])
    )
    return parts + [_row(table, row, places[row.arm.letter], x) for row in table.rows]


def _shape(of: str, points: list[tuple[str, int]]) -> Markup:
    """A line through the arms that both tables have."""
    lines = [
        tag("line", class_="shape", x1=a, y1=top, x2=b, y2=bottom)
        for (a, top), (b, bottom) in zip(points, points[1:])
    ]
    return tag("g", *lines, class_=of)


def _row(table: Table, row: Row, y: int, x: Callable[[float], str]) -> Markup:
    arm, spread = row.arm, row.test_sd or 0.0
    marks = [
        tag(
            "line",
            class_="sd",
            x1=x(row.test_mean - spread),
            x2=x(min(100.0, row.test_mean + spread)),
            y1=y,
            y2=y,
        )
    ]
    marks += [tag("circle", class_="seed", cx=x(run.test), cy=y, r=3) for run in row.runs]
    marks += [tag("circle", class_="mean", cx=x(row.test_mean), cy=y, r=4.5)]
    marks += [tag("text", test(row), class_="figure", x="100%", y=y + 4)]
    tip = f"{arm.letter}, {arm.name}: {test(row)}"
    parts = [
        tag("text", arm.letter, x=0, y=y + 4),
        tag("text", arm.name, x=26, y=y + 4),
        tag("g", *marks, class_="ours"),
    ]
    if arm.letter in SOURCE:
        parts.append(
            tag(
                "g",
                tag("circle", class_="mean", cx=x(SOURCE[arm.letter]), cy=y, r=4.5),
                class_="source",
            )
        )
        tip += f"; the source table {SOURCE[arm.letter]:g}"
    first = table.against_control(row)
    if first is not None:
        tip += (
            f"; {first.difference.mean:+.1f} points from {first.against}, "
            f"{p_text(first.difference.p)}"
        )
    return tag(
        "g",
        tag("rect", class_="hit", x=0, y=y - ROW // 2, width="100%", height=ROW),
        *parts,
        class_="row",
        data_tip=tip,
    )
