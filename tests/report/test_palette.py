"""Stage colors under simulated color blindness."""

from itertools import combinations

import numpy as np
import pytest
from report.made_up import nasty, report

from feedline.analysis.report.palette import COLORS, Palette, _ink, _luminance

#: Machado, Oliveira, Fernandes: A Physiologically-based Model for Simulation of Color Vision
#: Deficiency, 2009, severity 1.0; on linear RGB.
BLINDNESS = {
    "none": np.eye(3),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "tritanopia": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WITH_WORKERS = [
    "epoch_start",
    "sampler",
    "wait",
    "transport",
    "pin",
    "copy",
    "forward",
    "loss",
    "backward",
    "optimizer",
    "other",
]
WITHOUT_WORKERS = [
    "sampler",
    "read",
    "decode",
    "augment",
    "dataset",
    "collate",
    "copy",
    "forward",
    "loss",
    "backward",
    "optimizer",
    "other",
]
MIN_DISTANCE = 12  # in CIELAB; about 2 can just be told apart side by side


def lab(color: str, blindness: str) -> np.ndarray:
    channels = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    x, y, z = TO_XYZ @ np.clip(BLINDNESS[blindness] @ linear, 0, 1) / np.array([0.9505, 1.0, 1.089])
    fx, fy, fz = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
    return np.array([116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)])


@pytest.mark.parametrize("blindness", BLINDNESS)
@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_stages_that_meet_in_a_step_can_be_told_apart(blindness: str, scheme: int) -> None:
    close = []
    for order in (WITH_WORKERS, WITHOUT_WORKERS):
        for (at, one), (there, other) in combinations(enumerate(order), 2):
            distance = float(
                np.linalg.norm(
                    lab(COLORS[one][scheme], blindness) - lab(COLORS[other][scheme], blindness)
                )
            )
            if there - at <= 2 and distance < MIN_DISTANCE:
                close.append((one, other, round(distance, 1)))

    assert not close


@pytest.mark.parametrize("stage", COLORS)
def test_text_on_a_segment_has_contrast_to_read(stage: str) -> None:
    for color in COLORS[stage]:
        text, ground = (
            _luminance("#000000" if _ink(color) == "#000" else "#ffffff"),
            _luminance(color),
        )
        assert (max(text, ground) + 0.05) / (min(text, ground) + 0.05) >= 4.5


def test_a_users_own_stages_get_colors_of_their_own() -> None:
    palette = Palette(nasty())

    classes = [palette.css_class(stage) for stage in nasty().step.stages]

    assert len(set(classes)) == len(classes)


def test_a_stage_has_the_same_color_in_every_part_of_the_report() -> None:
    palette = Palette(report())

    assert palette.css_class("decode") == "c-decode"
    assert palette.css_class("total") == "c-total"
