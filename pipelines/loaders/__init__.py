"""Loaders of the same images, one file each, behind one protocol (protocol.py)."""

from feedline.pipelines.loaders import (
    dali_cpu,
    dali_gpu,
    dali_proxy,
    gpu_augment,
    opencv_albumentations,
    pillow_v1,
    pillow_v1_uint8,
    pillow_v2,
    simplejpeg_albumentations,
    simplejpeg_v2,
    spdl_threads,
    synthetic,
)
from feedline.pipelines.loaders.protocol import LoaderKind

#: The fastest first, as they were where all of them were measured (docs/measured/compare.md).
KINDS: list[LoaderKind] = [
    synthetic.KIND,
    dali_gpu.KIND,
    dali_proxy.KIND,
    gpu_augment.KIND,
    dali_cpu.KIND,
    simplejpeg_v2.KIND,
    simplejpeg_albumentations.KIND,
    opencv_albumentations.KIND,
    pillow_v2.KIND,
    spdl_threads.KIND,
    pillow_v1_uint8.KIND,
    pillow_v1.KIND,
]
