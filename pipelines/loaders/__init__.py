"""Loaders of the same images, one file each, behind one protocol (protocol.py)."""

from feedline.pipelines.loaders import dali_loaders, opencv_loader, pillow_loaders, simplejpeg_loaders, spdl_loader, synthetic_loader
from feedline.pipelines.loaders.protocol import LoaderKind

#: The fastest first, as they were where all of them were measured (docs/measured/compare.md).
KINDS: list[LoaderKind] = [
    synthetic_loader.SYNTHETIC,
    dali_loaders.DALI_GPU,
    dali_loaders.DALI_PROXY,
    simplejpeg_loaders.GPU_AUGMENT,
    dali_loaders.DALI_CPU,
    simplejpeg_loaders.SIMPLEJPEG_V2,
    simplejpeg_loaders.SIMPLEJPEG_ALBU,
    opencv_loader.OPENCV_ALBU,
    pillow_loaders.PILLOW_V2,
    spdl_loader.SPDL,
    pillow_loaders.PILLOW_V1_UINT8,
    pillow_loaders.PILLOW_V1,
]
