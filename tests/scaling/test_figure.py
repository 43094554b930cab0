"""The figure of a scaling study."""

import re

import pytest

from feedline.analysis.report.figures.throughput import throughput_by_ranks
from feedline.analysis.scaling.efficiency import Point
from feedline.analysis.scaling.study import study


def test_linear_scaling_is_drawn_as_a_straight_line():
    drawn = str(throughput_by_ranks(study([Point(ranks, 100.0 * ranks) for ranks in (1, 2, 4, 8)])))

    paths = re.findall(r'class="line" d="M([^"]+)"', drawn)
    ideal, measured = (
        [tuple(map(float, point.split())) for point in path.split("L")] for path in paths
    )
    slopes = [
        (y1 - y0) / (x1 - x0) for (x0, y0), (x1, y1) in zip(measured, measured[1:], strict=False)
    ]
    assert len(measured) == 4 and slopes == pytest.approx([slopes[0]] * 3, rel=0.01), (
        "equal gains per rank"
    )
    assert ideal == [measured[0], measured[-1]]
