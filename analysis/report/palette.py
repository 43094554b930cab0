"""One color per stage, the same in every figure.

Hues follow what a stage does: making data is warm, moving it is green, computing is blue, the rest
is gray. Within a family, neighbors differ in lightness, which every kind of color vision keeps and
which survives gray paper; a test holds their distance under simulated color blindness.
"""

import re

from feedline.analysis.explain.model import Report
from feedline.analysis.measure.stages import STAGES

#: stage -> color on white, color on black
COLORS = {spec.name: spec.colors for spec in STAGES if spec.colors is not None}
_FAMILIES = {spec.name: spec.family for spec in STAGES}
#: Parts of a trace's budget have the color of what they are like.
_LIKE = {
    "compute": "forward",
    "waiting_for_rank": "wait",
    "exposed_transfer": "pin",
    "exposed_copy": "copy",
    "synchronisation": "sampler",
    "host_launch": "dataset",
    "unexplained": "other",
}
#: For stages that a user named, in the order they are met.
_USER = (
    ("#00838f", "#1fa3b0"),
    ("#c2569b", "#d977b4"),
    ("#6b8e23", "#86ac38"),
    ("#5b3f8c", "#8465bb"),
    ("#b3a100", "#cbb91a"),
    ("#8d6e63", "#a88a7f"),
)


class Palette:
    """Gives every stage of one report its color, as a CSS class."""

    def __init__(self, report: Report) -> None:
        names: dict[str, None] = {}
        if report.step:
            names.update(dict.fromkeys([*report.step.stages, *report.step.series.stages]))
        if report.workers:
            names.update(
                dict.fromkeys(
                    [
                        *report.workers.per_sample,
                        *(operation.stage for operation in report.workers.operations),
                    ]
                )
            )
        own = [
            name for name in names if name not in COLORS and name not in _LIKE and name != "total"
        ]
        self._slot = {name: f"c-user{index % len(_USER)}" for index, name in enumerate(own)}

    def css_class(self, stage: str) -> str:
        """Return the class that sets ``--c``, the stage's color."""
        stage = _LIKE.get(stage, stage)
        if stage in COLORS:
            return f"c-{stage}"
        return self._slot.get(stage, "c-total")


def family(stage: str) -> str:
    """Return what a stage does: wait, input, move, compute, rest, or user."""
    return _FAMILIES.get(_LIKE.get(stage, stage), "user")


def _luminance(color: str) -> float:
    """Return the relative luminance (0 to 1) of ``#rrggbb``.

    WCAG 2.2 defines it (https://www.w3.org/TR/WCAG22/#dfn-relative-luminance).
    """
    channels = [int(color[index : index + 2], 16) / 255 for index in (1, 3, 5)]
    linear = [
        channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4
        for channel in channels
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _ink(color: str) -> str:
    """Return black or white, whichever has more contrast on this color."""
    return "#000" if _luminance(color) > 0.179 else "#fff"


def _variables(color: str) -> str:
    return f"--c:{color};--on:{_ink(color)}"


def css() -> str:
    """Return the style rules for both color schemes."""
    slots = COLORS | {f"user{index}": colors for index, colors in enumerate(_USER)}
    assert all(re.fullmatch(r"[a-z0-9_]+", name) for name in slots)
    light = "".join(f".c-{name}{{{_variables(colors[0])}}}" for name, colors in slots.items())
    dark = "".join(f".c-{name}{{{_variables(colors[1])}}}" for name, colors in slots.items())
    return f"{light}\n@media screen and (prefers-color-scheme:dark){{{dark}}}"
