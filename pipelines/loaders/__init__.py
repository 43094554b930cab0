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

KINDS: list[LoaderKind] = [  # the first is the reference that the others' images are compared with
    pillow_v1.KIND,
    pillow_v1_uint8.KIND,
    pillow_v2.KIND,
    simplejpeg_v2.KIND,
    opencv_albumentations.KIND,
    simplejpeg_albumentations.KIND,
    spdl_threads.KIND,
    dali_cpu.KIND,
    gpu_augment.KIND,
    dali_proxy.KIND,
    dali_gpu.KIND,
    synthetic.KIND,
]
