"""OpenCV: the functions that datasets call most, and the frames of videos.

They are built-in, so each call is one span.
"""

from types import ModuleType
from typing import Any

from feedline.profiler import masks
from feedline.profiler.events import Stage
from feedline.profiler.taps.operations.library import Library, Tap
from feedline.profiler.taps.operations.span import augmented_size, collect, decoded_size, missing

DECODERS = ("imread", "imdecode")
# set: going to a frame decodes those since the last key frame
_FRAMES = ("read", "grab", "retrieve", "set")
_VIDEO = "cv2.VideoCapture"
OPERATIONS = (
    "LUT",
    "GaussianBlur",
    "addWeighted",
    "blur",
    "copyMakeBorder",
    "cvtColor",
    "equalizeHist",
    "filter2D",
    "flip",
    "medianBlur",
    "normalize",
    "remap",
    "resize",
    "rotate",
    "transpose",
    "warpAffine",
    "warpPerspective",
)


def install(tap: Tap, cv2: ModuleType) -> None:
    free = tap.free(cv2, (*DECODERS, *OPERATIONS))
    tap.functions(cv2, [name for name in free if name in DECODERS], Stage.DECODE, decoded_size)
    tap.functions(cv2, [name for name in free if name in OPERATIONS], Stage.AUGMENT, augmented_size)
    try:
        for name in _FRAMES:
            tap.method(cv2.VideoCapture, name, Stage.DECODE, _frame, f"{_VIDEO}.{name}")
    except (
        AttributeError,
        KeyError,
        TypeError,
    ) as error:  # built without videos, or with types that cannot be changed
        tap.left.append(
            f"{_VIDEO} cannot be replaced ({masks.error(error)}): its time is the dataset's own"
        )


def _frame(result: Any) -> tuple[int, int]:
    """Return the bytes of a frame that is handed over.

    No pixels: most are decoded only to get to a frame, which a smaller picture would not spare.
    """
    return (result[1].nbytes if isinstance(result, tuple) and result[0] else 0), 0


def _selftest() -> str | None:
    import cv2
    import numpy as np

    png = cv2.imencode(".png", np.zeros((16, 16, 3), np.uint8))[1]
    spans = collect(lambda: cv2.resize(np.asarray(cv2.imdecode(png, cv2.IMREAD_COLOR)), (8, 8)))
    expected = [(Stage.DECODE, "cv2.imdecode"), (Stage.AUGMENT, "cv2.resize")]
    if hasattr(cv2, "VideoCapture"):
        spans += collect(cv2.VideoCapture().read)
        expected.append((Stage.DECODE, f"{_VIDEO}.read"))
    return missing(spans, *expected)


LIBRARY = Library(
    "cv2",
    "cv2",
    "imdecode, resize, cvtColor, ...; imread and VideoCapture.read read and decode in one call: "
    "counted as decode",
    install,
    _selftest,
)
