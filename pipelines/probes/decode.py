"""Images that one core decodes per second, by library. The result is first compared with Pillow's pixels."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from feedline.pipelines.photos import Photo
from feedline.pipelines.probes import decoders
from feedline.pipelines.probes.decoders import DECODERS, DecodeAll, Decoder, pixels
from feedline.pipelines.probes.measure import Measured, Refused, Work, ceiling, in_turns, one_core, reason
from feedline.pipelines.probes.subject import Subject
from feedline.profiler.ceilings import Ceiling

# Gray levels (0 to 255), mean of one image. Decoders round chroma upsampling and color conversion differently, by about one; an image of
# another file, or one with red and blue exchanged, is tens away.
_LARGEST_MEAN_DIFFERENCE = 4.0


@dataclass(frozen=True)
class Ready:
    """A decoder with correct pixels.

    Attributes:
        difference: from Pillow's pixels, in gray levels, mean over all.
    """

    decode: DecodeAll
    photos: int
    pixels: int
    difference: float


def probe(subject: Subject) -> Iterator[Ceiling]:
    """A ceiling per library: samples/s on one core, or on one GPU."""
    if not subject.images:
        yield ceiling("decode", "no dataset given: use --data DIR")
        return
    with one_core():
        ready = {decoder.name: prepared(decoder, subject.images) for decoder in DECODERS}
        works = {name: work(one) for name, one in ready.items() if isinstance(one, Ready)}
        found = in_turns(works, subject.plan)
    for decoder in DECODERS:
        yield _ceiling(decoder, ready[decoder.name], found.get(decoder.name))


def work(ready: Ready) -> Work:
    """A pass decodes all images and drops them one by one."""

    def run() -> int:
        deque(ready.decode(), maxlen=0)
        return ready.photos

    return Work(run)


def prepared(decoder: Decoder, photos: Sequence[Photo]) -> Ready | str:
    """Create a decoder and check its pixels. Returns the reason if it cannot be used."""
    taken = [photo for photo in photos if decoder.formats is None or photo.format in decoder.formats]
    if not taken:
        return f"none of the files is {' or '.join(sorted(decoder.formats or ()))}"
    blobs = [Path(photo.path).read_bytes() for photo in taken]
    try:
        decode = decoder.make(blobs)
        differences = _checked(decode, blobs, [photo.path for photo in taken])
    except Exception as error:
        return reason(error)
    return Ready(decode, len(taken), sum(photo.width * photo.height for photo in taken), differences)


def _checked(decode: DecodeAll, blobs: Sequence[bytes], names: Sequence[str]) -> float:
    """Compare every image with Pillow's.

    Returns:
        The mean difference, in gray levels.

    Raises:
        Refused: an image is missing, of another shape, or another image; the file is named.
    """
    count, total = 0, 0.0
    for name, ours, theirs in zip(names, decode(), decoders.pillow(blobs)()):
        if ours is None:
            raise Refused(f"{name}: gave neither an image nor an error: a driver is missing, or it cannot read this file")
        image, reference = pixels(ours), np.asarray(theirs)
        if image.shape != reference.shape:
            raise Refused(f"{name}: gave an image of shape {image.shape}, Pillow one of {reference.shape}")
        difference = float(np.abs(image.astype(np.int16) - reference.astype(np.int16)).mean())
        if difference > _LARGEST_MEAN_DIFFERENCE:
            raise Refused(f"{name}: differs from Pillow's image by {difference:.1f} gray levels on average")
        count, total = count + 1, total + difference
    if count != len(blobs):
        raise Refused(f"gave only {count} images for {len(blobs)} files")
    return total / count


def _ceiling(decoder: Decoder, ready: Ready | str, found: Measured | str | None) -> Ceiling:
    name = f"decode/{decoder.name}"
    if isinstance(ready, str):
        return ceiling(name, ready, per=decoder.per)
    settings: dict[str, object] = {
        "library": decoder.name,
        "files": ready.photos,
        "megapixels_per_file": round(ready.pixels / ready.photos / 1e6, 4),
        "grey_levels_from_pillow": round(ready.difference, 3),
    }
    source = f"{ready.photos} of the user's files, from memory, on one core; pixels compared with Pillow's"
    return ceiling(name, found or "not measured", per=decoder.per, source=source, settings=settings)
