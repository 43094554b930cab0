"""Decoders: each turns a list of encoded images into a function that decodes them all, one by one.

None of them turns an image by its EXIF orientation, as Pillow's ``open`` does not, so that all give the same pixels.
"""

import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from feedline.pipelines.loaders import decode
from feedline.pipelines.probes.measure import Refused, see_gpu

_Images = Iterable[Any]  # whatever the library gives; ``pixels`` makes arrays of it
DecodeAll = Callable[[], _Images]
_BATCH = 16  # of the libraries that take several images at once
_COMMON = frozenset({"JPEG", "PNG", "WEBP", "BMP", "TIFF"})


@dataclass(frozen=True)
class Decoder:
    """Attributes:
    make: prepares; raises Refused or ImportError where the library cannot run.
    formats: as Pillow names them; None: what Pillow reads.
    per: ``core``, or ``device`` for a decoder on a GPU.
    """

    name: str
    make: Callable[[Sequence[bytes]], DecodeAll]
    formats: frozenset[str] | None = None
    per: str = "core"


def _each(one: Callable[[bytes], Any]) -> Callable[[Sequence[bytes]], DecodeAll]:
    """As a loader decodes: file by file."""
    return lambda blobs: lambda: map(one, blobs)


pillow = _each(decode.pillow)


def torchvision(blobs: Sequence[bytes]) -> DecodeAll:
    import torch
    from torchvision.io import ImageReadMode, decode_image

    tensors = [torch.frombuffer(bytearray(blob), dtype=torch.uint8) for blob in blobs]
    return lambda: (decode_image(tensor, ImageReadMode.RGB) for tensor in tensors)


def _nvimagecodec_cpu(blobs: Sequence[bytes]) -> DecodeAll:
    nvimgcodec = importlib.import_module("nvidia.nvimgcodec")
    if not hasattr(nvimgcodec, "NVIMGCODEC_DEVICE_CPU_ONLY"):
        raise Refused("this version of nvImageCodec needs a CUDA driver")
    return nvimagecodec(blobs, nvimgcodec.NVIMGCODEC_DEVICE_CPU_ONLY, [nvimgcodec.Backend(nvimgcodec.BackendKind.CPU_ONLY)])


def _nvimagecodec_gpu(blobs: Sequence[bytes]) -> DecodeAll:
    see_gpu()
    return nvimagecodec(blobs, -1, None)


def nvimagecodec(blobs: Sequence[bytes], device: int, backends: "list[Any] | None") -> DecodeAll:
    """A decoder that, without a driver, raises or gives None for every image, as the version and the backends have it."""
    nvimgcodec = importlib.import_module("nvidia.nvimgcodec")
    decoder = nvimgcodec.Decoder(device_id=device, max_num_cpu_threads=1, backends=backends)
    how = nvimgcodec.DecodeParams(apply_exif_orientation=False, color_spec=nvimgcodec.ColorSpec.SRGB)
    batches = [blobs[at : at + _BATCH] for at in range(0, len(blobs), _BATCH)]

    def decoded() -> Iterator[Any]:
        for batch in batches:
            images = decoder.decode([nvimgcodec.CodeStream(blob) for blob in batch], params=how)
            _wait_for_gpu()
            yield from images

    return decoded


def _dali_cpu(blobs: Sequence[bytes]) -> DecodeAll:
    return _dali(blobs, "cpu")


def _dali_mixed(blobs: Sequence[bytes]) -> DecodeAll:
    see_gpu()
    return _dali(blobs, "mixed")


def _dali(blobs: Sequence[bytes], device: str) -> DecodeAll:
    from nvidia.dali import fn, pipeline_def
    from nvidia.dali import types as dali_types

    types: Any = dali_types  # what its stubs leave out
    arrays = [np.frombuffer(blob, np.uint8) for blob in blobs]
    batches = [arrays[at : at + _BATCH] for at in range(0, len(arrays), _BATCH)]

    @pipeline_def
    def decoding() -> Any:
        encoded = fn.external_source(source=batches, cycle="quiet", dtype=types.UINT8, ndim=1)
        return fn.decoders.image(encoded, device=device, output_type=types.RGB, adjust_orientation=False)

    pipeline = decoding(batch_size=_BATCH, num_threads=1, device_id=None if device == "cpu" else 0, prefetch_queue_depth=1)
    pipeline.build()

    def decoded() -> Iterator[Any]:
        for batch in batches:
            (images,) = pipeline.run()
            yield from (images[number] for number in range(len(batch)))

    return decoded


def pixels(image: Any) -> "np.ndarray[Any, Any]":
    """The result of a decoder as uint8 [3, h, w]."""
    for to_host in ("as_cpu", "cpu"):  # DALI's name, torch's and nvImageCodec's
        if hasattr(image, to_host):
            image = getattr(image, to_host)()
            break
    array = np.asarray(image)
    return array.transpose(1, 2, 0) if array.ndim == 3 and array.shape[0] == 3 and array.shape[2] != 3 else array


def _wait_for_gpu() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


DECODERS = [
    Decoder("Pillow", pillow),
    Decoder("simplejpeg", _each(decode.libjpeg_turbo), frozenset({"JPEG"})),
    Decoder("OpenCV", _each(decode.opencv), _COMMON),
    Decoder("torchvision.io", torchvision, frozenset({"JPEG", "PNG", "WEBP"})),
    Decoder("nvImageCodec CPU", _nvimagecodec_cpu, _COMMON),
    Decoder("nvImageCodec GPU", _nvimagecodec_gpu, _COMMON, "device"),
    Decoder("DALI CPU", _dali_cpu, _COMMON),
    Decoder("DALI mixed", _dali_mixed, _COMMON, "device"),
]
