import re

from feedline.analysis.explain.model import MeasuredRun, Report
from feedline.analysis.measure.user_code import CodeLine, UserFunction
from feedline.analysis.report.figures.sample_cost import code_icicle
from feedline.analysis.report.palette import Palette


def function(name, share, depth, place="dataset"):
    line = CodeLine(9, share / 2, "json.loads")
    return UserFunction(
        "worker", place, name, "data.py", 9, share, share, share, 0.0, None, "", depth, "", [line]
    )


class NoStages(Report):
    def __init__(self):
        object.__setattr__(self, "step", None)
        object.__setattr__(self, "workers", None)


def places(svg):
    rects = re.findall(r'<rect [^>]*x="([\d.]+)%" y="(\d+)" width="([\d.]+)%"', str(svg))
    return [(float(x), int(y), float(width)) for x, y, width in rects]


def test_a_function_lies_below_its_caller_and_beside_its_siblings():
    svg = code_icicle(
        [
            function("load", 0.6, 0),
            function("parse", 0.4, 1),
            function("pad", 0.1, 1),
            function("collate", 0.3, 0, "collate"),
        ],
        Palette(NoStages()),
    )

    assert places(svg) == [(0, 0, 60), (0, 26, 40), (40, 26, 10), (60, 0, 30)]
    assert "load() data.py:9: 60.0 % of making a sample; line 9: 30.0 % in json.loads" in str(svg)


def test_nothing_is_drawn_without_functions():
    assert code_icicle([], Palette(NoStages())) is None
    assert MeasuredRun.__dataclass_fields__["user_code"].default is None
