"""OpenCV: the functions that data sets call most. They are built-in functions, so each is one span."""

from types import ModuleType

from feedline.profiler.events import Stage
from feedline.profiler.taps.operations import sizes
from feedline.profiler.taps.operations.collect import collect, missing
from feedline.profiler.taps.operations.library import Library, Tap

DECODERS = ("imread", "imdecode")
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
    tap.functions(cv2, [name for name in free if name in DECODERS], Stage.DECODE, sizes.decoded)
    tap.functions(cv2, [name for name in free if name in OPERATIONS], Stage.AUGMENT, sizes.augmented)


def selftest() -> str | None:
    import cv2
    import numpy as np

    png = cv2.imencode(".png", np.zeros((16, 16, 3), np.uint8))[1]
    spans = collect(lambda: cv2.resize(np.asarray(cv2.imdecode(png, cv2.IMREAD_COLOR)), (8, 8)))
    return missing(spans, (Stage.DECODE, "cv2.imdecode"), (Stage.AUGMENT, "cv2.resize"))


LIBRARY = Library(
    "cv2", "cv2", "imdecode, resize, cvtColor, ...; imread reads and decodes in one call: counted as decode", install, selftest
)
