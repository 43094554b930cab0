"""Images that one core decodes per second, by library; and one decoder instead of another.

A decoder turns a list of encoded images into a function that decodes them all, one by one. The
result is first compared with Pillow's pixels. None of them turns an image by its EXIF orientation,
as Pillow's ``open`` does not, so that all give the same pixels.
"""

import importlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from feedline.pipelines import photos
from feedline.pipelines.loaders import image_samples
from feedline.pipelines.photos import Photo
from feedline.pipelines.probes.probe_rounds import (
    CannotMeasure,
    MeasuredRate,
    ProbePlan,
    Subject,
    Workload,
    as_ceiling,
    error_reason,
    measure_in_turns,
    on_one_core,
    require_gpu,
)
from feedline.profiler.ceilings import Ceiling
from feedline.profiler.errors import ScriptError

_DecodedImages = Iterable[Any]  # whatever the library gives; ``_as_pixels`` makes arrays of it
_DecodeAll = Callable[[], _DecodedImages]
_BATCH_IMAGES = 16  # of the libraries that take several images at once
_COMMON_FORMATS = frozenset({"JPEG", "PNG", "WEBP", "BMP", "TIFF"})
# Gray levels (0 to 255), mean of one image. Decoders round chroma upsampling and color conversion
# differently, by about one; an image of another file, or one with red and blue exchanged, is tens
# away.
_MAX_GRAY_DIFFERENCE = 4.0
#: At most 50 files: a few seconds, of images of two megapixels.
_COMPARISON_PLAN = ProbePlan(rounds=5, seconds=0.2, files=50, pixels=100e6)
#: If the mean pixels of the files differ by more than this factor from what the training decoded,
#: these are not its files.
_MAX_PIXEL_RATIO = 2.0
#: Short names for ``--set decode=NAME``, beside the full ones.
_SHORT_NAMES = {
    "pil": "Pillow",
    "turbo": "simplejpeg",
    "cv2": "OpenCV",
    "torchvision": "torchvision.io",
    "dali": "DALI CPU",
    "nvimagecodec": "nvImageCodec CPU",
}
#: How names of recorded operations begin -> the decoder.
_RECORDED_PREFIXES = {"PIL.": "Pillow", "cv2.": "OpenCV", "torchvision.": "torchvision.io"}


@dataclass(frozen=True)
class ImageDecoder:
    """A decoder of images.

    Attributes:
        make: prepares; raises CannotMeasure or ImportError where the library cannot run.
        formats: as Pillow names them; None: what Pillow reads.
        per: ``core``, or ``device`` for a decoder on a GPU.
    """

    name: str
    make: Callable[[Sequence[bytes]], _DecodeAll]
    formats: frozenset[str] | None = None
    per: str = "core"


def _each(decode: Callable[[bytes], Any]) -> Callable[[Sequence[bytes]], _DecodeAll]:
    """Decode file by file, as a loader does."""
    return lambda blobs: lambda: map(decode, blobs)


_pillow_decoder = _each(image_samples.decode_pillow)


def _torchvision_decoder(blobs: Sequence[bytes]) -> _DecodeAll:
    import torch
    from torchvision.io import ImageReadMode, decode_image

    tensors = [torch.frombuffer(bytearray(blob), dtype=torch.uint8) for blob in blobs]
    return lambda: (decode_image(tensor, ImageReadMode.RGB) for tensor in tensors)


def _nvimagecodec_cpu(blobs: Sequence[bytes]) -> _DecodeAll:
    nvimgcodec = importlib.import_module("nvidia.nvimgcodec")
    if not hasattr(nvimgcodec, "NVIMGCODEC_DEVICE_CPU_ONLY"):
        raise CannotMeasure("this version of nvImageCodec needs a CUDA driver")
    return _nvimagecodec_decoder(
        blobs,
        nvimgcodec.NVIMGCODEC_DEVICE_CPU_ONLY,
        [nvimgcodec.Backend(nvimgcodec.BackendKind.CPU_ONLY)],
    )


def _nvimagecodec_gpu(blobs: Sequence[bytes]) -> _DecodeAll:
    require_gpu()
    return _nvimagecodec_decoder(blobs, -1, None)


def _nvimagecodec_decoder(
    blobs: Sequence[bytes], device: int, backends: "list[Any] | None"
) -> _DecodeAll:
    """Prepare nvImageCodec.

    Without a driver it raises, or gives None for every image, as the version and the backends have
    it.
    """
    nvimgcodec = importlib.import_module("nvidia.nvimgcodec")
    decoder = nvimgcodec.Decoder(device_id=device, max_num_cpu_threads=1, backends=backends)
    how = nvimgcodec.DecodeParams(
        apply_exif_orientation=False, color_spec=nvimgcodec.ColorSpec.SRGB
    )
    batches = [blobs[at : at + _BATCH_IMAGES] for at in range(0, len(blobs), _BATCH_IMAGES)]

    def decoded() -> Iterator[Any]:
        for batch in batches:
            images = decoder.decode([nvimgcodec.CodeStream(blob) for blob in batch], params=how)
            _wait_for_gpu()
            yield from images

    return decoded


def _dali_cpu(blobs: Sequence[bytes]) -> _DecodeAll:
    return _dali(blobs, "cpu")


def _dali_mixed(blobs: Sequence[bytes]) -> _DecodeAll:
    require_gpu()
    return _dali(blobs, "mixed")


def _dali(blobs: Sequence[bytes], device: str) -> _DecodeAll:
    from nvidia.dali import fn, pipeline_def
    from nvidia.dali import types as dali_types

    types: Any = dali_types  # what its stubs leave out
    arrays = [np.frombuffer(blob, np.uint8) for blob in blobs]
    batches = [arrays[at : at + _BATCH_IMAGES] for at in range(0, len(arrays), _BATCH_IMAGES)]

    @pipeline_def
    def decoding() -> Any:
        encoded = fn.external_source(source=batches, cycle="quiet", dtype=types.UINT8, ndim=1)
        return fn.decoders.image(
            encoded, device=device, output_type=types.RGB, adjust_orientation=False
        )

    pipeline = decoding(
        batch_size=_BATCH_IMAGES,
        num_threads=1,
        device_id=None if device == "cpu" else 0,
        prefetch_queue_depth=1,
    )
    pipeline.build()

    def decoded() -> Iterator[Any]:
        for batch in batches:
            (images,) = pipeline.run()
            yield from (images[number] for number in range(len(batch)))

    return decoded


def _as_pixels(image: Any) -> "np.ndarray[Any, Any]":
    """Return the result of a decoder as uint8 [h, w, 3]."""
    for to_host in ("as_cpu", "cpu"):  # DALI's name, torch's and nvImageCodec's
        if hasattr(image, to_host):
            image = getattr(image, to_host)()
            break
    array = np.asarray(image)
    return (
        array.transpose(1, 2, 0)
        if array.ndim == 3 and array.shape[0] == 3 and array.shape[2] != 3
        else array
    )


def _wait_for_gpu() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


_IMAGE_DECODERS = [
    ImageDecoder("Pillow", _pillow_decoder),
    ImageDecoder("simplejpeg", _each(image_samples.decode_libjpeg), frozenset({"JPEG"})),
    ImageDecoder("OpenCV", _each(image_samples.decode_opencv), _COMMON_FORMATS),
    ImageDecoder("torchvision.io", _torchvision_decoder, frozenset({"JPEG", "PNG", "WEBP"})),
    ImageDecoder("nvImageCodec CPU", _nvimagecodec_cpu, _COMMON_FORMATS),
    ImageDecoder("nvImageCodec GPU", _nvimagecodec_gpu, _COMMON_FORMATS, "device"),
    ImageDecoder("DALI CPU", _dali_cpu, _COMMON_FORMATS),
    ImageDecoder("DALI mixed", _dali_mixed, _COMMON_FORMATS, "device"),
]


@dataclass(frozen=True)
class _CheckedDecoder:
    """A decoder with correct pixels.

    Attributes:
        difference: from Pillow's pixels, in gray levels, mean over all.
    """

    decode: _DecodeAll
    photos: int
    pixels: int
    difference: float


def probe(subject: Subject) -> Iterator[Ceiling]:
    """Measure each library, in samples/s on one core, or on one GPU."""
    if not subject.images:
        yield as_ceiling("decode", "no dataset given: use --data DIR")
        return
    with on_one_core():
        ready = {
            decoder.name: _prepare_decoder(decoder, subject.images) for decoder in _IMAGE_DECODERS
        }
        works = {
            name: _decode_workload(checked)
            for name, checked in ready.items()
            if isinstance(checked, _CheckedDecoder)
        }
        rates = measure_in_turns(works, subject.plan)
    for decoder in _IMAGE_DECODERS:
        yield _ceiling(decoder, ready[decoder.name], rates.get(decoder.name))


def _decode_workload(ready: _CheckedDecoder) -> Workload:
    """Decode all images in each pass, and drop them one by one."""

    def run() -> int:
        deque(ready.decode(), maxlen=0)
        return ready.photos

    return Workload(run)


def _prepare_decoder(decoder: ImageDecoder, photos: Sequence[Photo]) -> _CheckedDecoder | str:
    """Create a decoder and check its pixels.

    Returns:
        The decoder, or the reason if it cannot be used.
    """
    readable = [
        photo for photo in photos if decoder.formats is None or photo.format in decoder.formats
    ]
    if not readable:
        return f"none of the files is {' or '.join(sorted(decoder.formats or ()))}"
    blobs = [Path(photo.path).read_bytes() for photo in readable]
    try:
        decode = decoder.make(blobs)
        differences = _checked(decode, blobs, [photo.path for photo in readable])
    except Exception as error:
        return error_reason(error)
    return _CheckedDecoder(
        decode, len(readable), sum(photo.width * photo.height for photo in readable), differences
    )


def _checked(decode: _DecodeAll, blobs: Sequence[bytes], names: Sequence[str]) -> float:
    """Compare every image with Pillow's.

    Returns:
        The mean difference, in gray levels.

    Raises:
        CannotMeasure: an image is missing, of another shape, or another image; the file is named.
    """
    count, total = 0, 0.0
    for name, ours, theirs in zip(names, decode(), _pillow_decoder(blobs)()):
        if ours is None:
            raise CannotMeasure(
                f"{name}: gave neither an image nor an error: a driver is missing, or it cannot "
                f"read this file"
            )
        image, reference = _as_pixels(ours), np.asarray(theirs)
        if image.shape != reference.shape:
            raise CannotMeasure(
                f"{name}: gave an image of shape {image.shape}, Pillow one of {reference.shape}"
            )
        difference = float(np.abs(image.astype(np.int16) - reference.astype(np.int16)).mean())
        if difference > _MAX_GRAY_DIFFERENCE:
            raise CannotMeasure(
                f"{name}: differs from Pillow's image by {difference:.1f} gray levels on average"
            )
        count, total = count + 1, total + difference
    if count != len(blobs):
        raise CannotMeasure(f"gave only {count} images for {len(blobs)} files")
    return total / count


def _ceiling(
    decoder: ImageDecoder, ready: _CheckedDecoder | str, rate: MeasuredRate | str | None
) -> Ceiling:
    name = f"decode/{decoder.name}"
    if isinstance(ready, str):
        return as_ceiling(name, ready, per=decoder.per)
    settings: dict[str, object] = {
        "library": decoder.name,
        "files": ready.photos,
        "megapixels_per_file": round(ready.pixels / ready.photos / 1e6, 4),
        "grey_levels_from_pillow": round(ready.difference, 3),
    }
    source = (
        f"{ready.photos} of the user's files, from memory, on one core; pixels compared with "
        f"Pillow's"
    )
    return as_ceiling(
        name, rate or "not measured", per=decoder.per, source=source, settings=settings
    )


@dataclass(frozen=True)
class _DecoderComparison:
    """CPU time of two decoders on the user's own files.

    Attributes:
        files: that were decoded.
        now_s, then_s: CPU seconds per file, of the old and of the new decoder.
        low, high: the smallest and the largest ratio of the new one's time to the old one's, of the
            rounds.
        grey_levels: mean difference of the new one's pixels from Pillow's, of 255.
    """

    files: int
    now_s: float
    then_s: float
    low: float
    high: float
    grey_levels: float


def find_decoder(name: str) -> ImageDecoder:
    """Find a decoder on CPUs by its name, in any case, or by a short one.

    Raises:
        ScriptError: there is no such decoder.
    """
    known = {decoder.name.lower(): decoder for decoder in _IMAGE_DECODERS if decoder.per == "core"}
    wanted = _SHORT_NAMES.get(name.lower(), name).lower()
    if wanted not in known:
        raise ScriptError(
            f"unknown decoder {name[:40]!r}; decoders: "
            f"{', '.join(decoder.name for decoder in known.values())}"
        )
    return known[wanted]


def recorded_decoder(operations: Iterable[str]) -> ImageDecoder | None:
    """Find the decoder that a training used, from its recorded operations.

    None: none was seen, or several.
    """
    used = {
        own
        for name in operations
        for begin, own in _RECORDED_PREFIXES.items()
        if name.startswith(begin)
    }
    return find_decoder(used.pop()) if len(used) == 1 else None


def compare_decoders(
    now: ImageDecoder, then: ImageDecoder, data: Path, pixels: float | None
) -> _DecoderComparison | str:
    """Measure both decoders on the same files, on one core.

    Args:
        now: the decoder that is used.
        then: the one that would be.
        data: folder of images.
        pixels: that the training decoded per sample. None: not recorded.

    Returns:
        The comparison, or the reason if it does not answer the question.

    Raises:
        DataError: the folder has no usable image.
        MissingDependency: Pillow is not installed.
    """
    images = Subject(photos.scan(data, limit=_COMPARISON_PLAN.files), plan=_COMPARISON_PLAN).images
    if pixels and (off := _unlike(images, pixels)):
        return off
    for decoder in (now, then):
        unread = sorted(
            {
                photo.format
                for photo in images
                if decoder.formats is not None and photo.format not in decoder.formats
            }
        )
        if unread:
            return f"{decoder.name} does not read {' or '.join(unread)}, which is among these files"
    with on_one_core():
        ready = {decoder.name: _prepare_decoder(decoder, images) for decoder in (now, then)}
        for name, prepared_one in ready.items():
            if isinstance(prepared_one, str):
                return f"{name} cannot be measured: {prepared_one}"
        rates = measure_in_turns(
            {
                name: _decode_workload(checked)
                for name, checked in ready.items()
                if isinstance(checked, _CheckedDecoder)
            },
            _COMPARISON_PLAN,
        )
    return _compared(now, then, ready[then.name], rates, len(images))


def _compared(
    now: ImageDecoder,
    then: ImageDecoder,
    ready: _CheckedDecoder | str,
    rates: dict[str, MeasuredRate | str],
    files: int,
) -> _DecoderComparison | str:
    old, new = rates[now.name], rates[then.name]
    if isinstance(old, str) or isinstance(new, str) or isinstance(ready, str):
        return next(why for why in (old, new, ready) if isinstance(why, str))
    ratios = [before / after for before, after in zip(old.rates, new.rates, strict=True)]
    ratio = new.cpu_s / old.cpu_s
    return _DecoderComparison(
        files, old.cpu_s, new.cpu_s, min(ratio, *ratios), max(ratio, *ratios), ready.difference
    )


def _unlike(images: Sequence[Photo], pixels: float) -> str:
    """Say why these are not the training's images; empty where they may be."""
    mean = sum(photo.width * photo.height for photo in images) / len(images)
    if 1 / _MAX_PIXEL_RATIO <= mean / pixels <= _MAX_PIXEL_RATIO:
        return ""
    return (
        f"these images have {mean / 1e6:.3g} megapixels and the training decodes "
        f"{pixels / 1e6:.3g} per sample: give its own dataset with "
        "--data; decoding at a reduced size cannot be compared"
    )
