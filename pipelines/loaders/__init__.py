"""Loaders of the same images, one file for each back end, behind one protocol (protocol.py)."""

from feedline.pipelines.loaders import (
    dali_loaders,
    opencv_loader,
    pillow_loaders,
    simplejpeg_loaders,
    spdl_loader,
    synthetic_loader,
)
from feedline.pipelines.loaders.protocol import LoaderKind

#: As they were where all of them were measured (docs/measured/compare.md).
_FASTEST_FIRST = (
    "synthetic",
    "dali-gpu",
    "dali-proxy",
    "gpu-augment",
    "dali-cpu",
    "simplejpeg-v2",
    "simplejpeg-albu",
    "opencv-albu",
    "pillow-v2",
    "spdl",
    "pillow-v1-uint8",
    "pillow-v1",
)

LOADERS: list[LoaderKind] = sorted(
    (
        synthetic_loader.SYNTHETIC,
        *dali_loaders.LOADERS,
        *simplejpeg_loaders.LOADERS,
        *opencv_loader.LOADERS,
        *pillow_loaders.LOADERS,
        *spdl_loader.LOADERS,
    ),
    key=lambda kind: _FASTEST_FIRST.index(kind.name),
)
