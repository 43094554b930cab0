"""One decoder instead of another, on the user's own files: CPU time of both, side by side."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from feedline.pipelines import photos
from feedline.pipelines.photos import Photo
from feedline.pipelines.probes.decode import Ready, prepared, work
from feedline.pipelines.probes.decoders import DECODERS, Decoder
from feedline.pipelines.probes.measure import Measured, Plan, in_turns, one_core
from feedline.pipelines.probes.subject import Subject
from feedline.profiler.errors import ScriptError

#: At most 50 files: a few seconds, of images of two megapixels.
_PLAN = Plan(rounds=5, seconds=0.2, files=50, pixels=100e6)

#: If the mean pixels of the files differ by more than this factor from what the training decoded, these are not its files.
_ALIKE = 2.0

#: Short names for ``--set decode=NAME``, beside the full ones.
_SHORT = {
    "pil": "Pillow",
    "turbo": "simplejpeg",
    "cv2": "OpenCV",
    "torchvision": "torchvision.io",
    "dali": "DALI CPU",
    "nvimagecodec": "nvImageCodec CPU",
}

#: How names of recorded operations begin -> the decoder.
_RECORDED = {"PIL.": "Pillow", "cv2.": "OpenCV", "torchvision.": "torchvision.io"}


@dataclass(frozen=True)
class Instead:
    """Attributes:
    files: that were decoded.
    now_s, then_s: CPU seconds per file, of the old and of the new decoder.
    low, high: the smallest and the largest ratio of the new one's time to the old one's, of the rounds.
    grey_levels: mean difference of the new one's pixels from Pillow's, of 255.
    """

    files: int
    now_s: float
    then_s: float
    low: float
    high: float
    grey_levels: float


def decoder(name: str) -> Decoder:
    """A decoder on CPUs by its name, in any case, or a short one.

    Raises:
        ScriptError: there is no such decoder.
    """
    known = {one.name.lower(): one for one in DECODERS if one.per == "core"}
    wanted = _SHORT.get(name.lower(), name).lower()
    if wanted not in known:
        raise ScriptError(f"unknown decoder {name[:40]!r}; decoders: {', '.join(one.name for one in known.values())}")
    return known[wanted]


def decoder_of(operations: Iterable[str]) -> Decoder | None:
    """The decoder that a training used, from its recorded operations. None: none was seen, or several."""
    used = {own for name in operations for begin, own in _RECORDED.items() if name.startswith(begin)}
    return decoder(used.pop()) if len(used) == 1 else None


def measure(now: Decoder, then: Decoder, data: Path, pixels: float | None) -> Instead | str:
    """Measure both decoders on the same files, on one core.

    Args:
        data: folder of images.
        pixels: that the training decoded per sample. None: not recorded.

    Returns:
        The reason if that does not answer the question.

    Raises:
        DataError, MissingDependency: the folder has no usable image.
    """
    images = Subject(photos.scan(data, limit=_PLAN.files), plan=_PLAN).images
    if pixels and (off := _unlike(images, pixels)):
        return off
    for one in (now, then):
        unread = sorted({photo.format for photo in images if one.formats is not None and photo.format not in one.formats})
        if unread:
            return f"{one.name} does not read {' or '.join(unread)}, which is among these files"
    with one_core():
        ready = {one.name: prepared(one, images) for one in (now, then)}
        for name, prepared_one in ready.items():
            if isinstance(prepared_one, str):
                return f"{name} cannot be measured: {prepared_one}"
        found = in_turns({name: work(one) for name, one in ready.items() if isinstance(one, Ready)}, _PLAN)
    return _compared(now, then, ready[then.name], found, len(images))


def _compared(now: Decoder, then: Decoder, ready: Ready | str, found: dict[str, Measured | str], files: int) -> Instead | str:
    old, new = found[now.name], found[then.name]
    if isinstance(old, str) or isinstance(new, str) or isinstance(ready, str):
        return next(why for why in (old, new, ready) if isinstance(why, str))
    ratios = [before / after for before, after in zip(old.rates, new.rates, strict=True)]
    ratio = new.cpu_s / old.cpu_s
    return Instead(files, old.cpu_s, new.cpu_s, min(ratio, *ratios), max(ratio, *ratios), ready.difference)


def _unlike(images: Sequence[Photo], pixels: float) -> str:
    """Why these are not the training's images; empty where they may be."""
    mean = sum(photo.width * photo.height for photo in images) / len(images)
    if 1 / _ALIKE <= mean / pixels <= _ALIKE:
        return ""
    return (
        f"these images have {mean / 1e6:.3g} megapixels and the training decodes {pixels / 1e6:.3g} per sample: give its own dataset with "
        "--data; decoding at a reduced size cannot be compared"
    )
