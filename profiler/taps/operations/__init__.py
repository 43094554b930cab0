"""Taps for reading, decoding and augmenting inside a sample, one file per library.

Each library has a file; a new one is a new file and a line in LIBRARIES. A file whose library is
imported by the same name ends in an underscore (``cv2_.py``), so that neither is mistaken for the
other. Nothing is imported that the training does not import. What is not seen: functions of the
user's own and libraries that are not here; their time is the dataset's own.
"""

from collections.abc import Callable

from feedline.profiler.message import ReportHook
from feedline.profiler.taps.operations import (
    albumentations_,
    cv2_,
    decord_,
    h5py_,
    library,
    monai_,
    numpy_,
    pil_,
    soundfile_,
    torchvision_,
    webdataset_,
    zarr_,
)
from feedline.profiler.taps.operations.library import AttachedTaps

LIBRARIES = (
    pil_.IMAGE,
    pil_.IMAGE_LOADING,
    torchvision_.TRANSFORMS,
    torchvision_.TRANSFORMS_V2,
    torchvision_.IO,
    cv2_.LIBRARY,
    numpy_.LIBRARY,
    h5py_.LIBRARY,
    zarr_.LIBRARY,
    webdataset_.LIBRARY,
    albumentations_.LIBRARY,
    monai_.LIBRARY,
    soundfile_.LIBRARY,
    decord_.LIBRARY,
    *library.UNTAPPED,
)

_attached = AttachedTaps(LIBRARIES)


def attach(report: ReportHook) -> Callable[[], None]:
    """Attach the taps of all libraries: now, or when one is imported.

    Attaching again, or in a process forked from one with taps, wraps nothing twice; the last undo
    restores.

    Args:
        report: called with (hook, whether it is attached, what it gives or why not) for each
            library that is imported.

    Returns:
        A function that restores the originals.
    """
    return _attached.attach(report)
