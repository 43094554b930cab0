"""Loaders of the same images, one file for each back end, behind one protocol (protocol.py)."""

from feedline.pipelines.loaders import (
    dali_loaders,
    opencv_loader,
    pillow_loaders,
    simplejpeg_loaders,
    spdl_loader,
)
from feedline.pipelines.loaders.protocol import LoaderKind
from feedline.pipelines.names import LOADER_NAMES

LOADERS: list[LoaderKind] = sorted(
    (
        *dali_loaders.LOADERS,
        *simplejpeg_loaders.LOADERS,
        *opencv_loader.LOADERS,
        *pillow_loaders.LOADERS,
        *spdl_loader.LOADERS,
    ),
    key=lambda kind: LOADER_NAMES.index(kind.name),
)
