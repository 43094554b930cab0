"""What each rank's mean step goes to, one stacked bar a rank.

Its parts are computing, moving bytes, and waiting for another rank.
"""

from collections.abc import Mapping
from typing import NamedTuple

from markupsafe import Markup

from feedline.analysis.ranks.communication import RankParts
from feedline.analysis.report.figures.svg import figure, percent, tag
from feedline.analysis.text.formatting import Scale, share

_ROW, _BAR = 22, 14  # px
QUEUE_KEY = "queue_s"


class _Part(NamedTuple):
    """How a field of ``RankParts`` is shown.

    It has words, a column of the terminal, and the class of its color.
    """

    words: str
    short: str
    color: str


#: Green moves and red waits, as in the stages of a step; what backward hides is the light one.
PART_LABELS = {
    "compute_s": _Part("all else", "all else", "c-forward"),
    "hidden_transfer_s": _Part("transfer hidden by backward", "transfer, hidden", "c-transport"),
    "exposed_transfer_s": _Part("exposed transfer", "transfer, exposed", "c-pin"),
    "hidden_wait_s": _Part("waiting hidden by backward", "waiting, hidden", "c-sampler"),
    "exposed_wait_s": _Part("exposed waiting", "waiting, exposed", "c-wait"),
    QUEUE_KEY: _Part("queue behind other collectives", "queue", "c-checkpoint"),
}


def rank_parts(parts: Mapping[str, RankParts]) -> Markup | None:
    """Draw bars on one scale, the first rank on top.

    Args:
        parts: by rank.
    """
    totals = {
        rank: sum(getattr(own, name) or 0.0 for name in PART_LABELS) for rank, own in parts.items()
    }
    longest = max(totals.values(), default=0.0)
    if longest <= 0:
        return None
    scale = Scale.column(longest)
    marks: list[Markup] = []
    for row, (rank, own) in enumerate(parts.items()):
        y, start = row * _ROW, 0.0
        marks.append(tag("text", f"rank {rank}", class_="tick name y", x=-8, y=y + 11))
        for name, (words, _, color) in PART_LABELS.items():
            width = (getattr(own, name) or 0.0) / longest
            if width <= 0:
                continue
            tip = (
                f"rank {rank}, {words}: {scale.full(getattr(own, name))}, "
                f"{share(width * longest / totals[rank])} of its step"
            )
            place = {"x": percent(start), "y": y, "width": percent(width), "height": _BAR}
            marks.append(tag("rect", class_=f"segment {color}", **place, data_tip=tip))
            start += width
        marks.append(
            tag("text", scale.full(totals[rank]), class_="tick amount", x="100%", dx=8, y=y + 11)
        )
    label = (
        "Mean step of each rank, split into its parts. Left and right arrow keys read out the "
        "parts."
    )
    return figure(marks, _ROW * len(parts), label)
