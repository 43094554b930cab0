"""Decoders give Pillow's pixels, or are refused."""

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from feedline.pipelines.photos import scan
from feedline.pipelines.probes import decoders
from feedline.pipelines.probes.decoders import ImageDecoder, _CheckedDecoder, _prepare_decoder


def decoder(change) -> ImageDecoder:
    """Pillow, with something done to each array."""
    return ImageDecoder(
        "changed",
        lambda blobs: (
            lambda: (change(np.asarray(image)) for image in decoders._pillow_decoder(blobs)())
        ),
    )


def test_every_library_that_runs_here_gives_the_same_pictures(subject, named):
    found = named(decoders.probe(subject()))

    measured = {name for name, one in found.items() if one.value}
    assert measured >= {"decode/Pillow", "decode/simplejpeg", "decode/OpenCV", "decode/DALI CPU"}
    assert all(float(str(found[name].settings["grey_levels_from_pillow"])) < 2 for name in measured)
    assert all(found[name].settings["files"] == 20 and found[name].cpu_s for name in measured)
    assert all(one.why for name, one in found.items() if name not in measured)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda image: image[..., ::-1], "differs from Pillow's image by"),
        (
            lambda image: image[:-1],
            r"gave an image of shape \(299, 400, 3\), Pillow one of \(300, 400, 3\)",
        ),
        (lambda image: None, "gave neither an image nor an error"),
        (lambda image: image // 2, "differs from Pillow's image by"),
    ],
)
def test_another_picture_is_refused_with_the_file_named(photos, change, message):
    refused = _prepare_decoder(decoder(change), photos.photos)

    assert isinstance(refused, str)
    assert Path(photos.photos[0].path).name in refused
    assert re.search(message, refused)


def test_a_decoder_that_leaves_images_out_is_refused(photos):
    lazy = ImageDecoder("lazy", lambda blobs: decoders._pillow_decoder(blobs[:-1]))

    assert _prepare_decoder(lazy, photos.photos) == "gave only 19 images for 20 files"


def test_nvimagecodec_without_a_driver_is_refused_for_giving_nothing(photos):
    import torch

    library = pytest.importorskip(
        "nvidia.nvimgcodec", reason="nvImageCodec is not installed; it comes with DALI"
    )
    if torch.cuda.is_available():
        pytest.skip("there is a GPU, with its driver")
    silent = ImageDecoder(
        "nvImageCodec",
        lambda blobs: decoders._nvimagecodec_decoder(
            blobs, library.NVIMGCODEC_DEVICE_CPU_ONLY, None
        ),
    )

    assert "gave neither an image nor an error" in str(_prepare_decoder(silent, photos.photos))


def test_a_decoder_is_measured_on_the_formats_that_it_knows(tmp_path, folder):
    for number, path in enumerate(sorted(folder.rglob("*.jpg"))[:6]):
        Image.open(path).save(tmp_path / f"{number}.{'png' if number % 2 else 'jpg'}")
    found = scan(tmp_path)
    jpeg_only = next(one for one in decoders._IMAGE_DECODERS if one.name == "simplejpeg")

    ready = _prepare_decoder(jpeg_only, found.photos)

    assert isinstance(ready, _CheckedDecoder) and ready.photos == 3
    assert (
        _prepare_decoder(jpeg_only, [one for one in found.photos if one.format == "PNG"])
        == "none of the files is JPEG"
    )


def test_images_turned_by_exif_are_left_as_they_are_by_all(tmp_path, folder, subject, named):
    turned = Image.open(next(folder.rglob("*.jpg"))).copy()
    exif = turned.getexif()
    exif[0x0112] = 6
    turned.save(tmp_path / "turned.jpg", exif=exif)

    found = named(decoders.probe(subject(photos=scan(tmp_path))))

    assert {name for name, one in found.items() if one.value} >= {
        "decode/Pillow",
        "decode/simplejpeg",
        "decode/OpenCV",
        "decode/DALI CPU",
    }


def test_without_a_data_set_there_is_one_row_that_says_so(subject):
    [row] = decoders.probe(subject(photos=None))

    assert "--data" in row.why
