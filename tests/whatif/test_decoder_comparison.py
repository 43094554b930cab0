"""Another decoder on the user's own files: its cost beside the old one's, or why that cannot be
told.
"""

import pytest
from PIL import Image
from planted import photos

from feedline.pipelines.probes import decoders
from feedline.profiler.errors import ScriptError


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return photos.write(tmp_path_factory.mktemp("photos") / "cat", 320, 240, 4).parent


def test_both_decoders_decode_the_same_files(files):
    found = decoders.compare_decoders(
        decoders.find_decoder("pil"), decoders.find_decoder("turbo"), files, 320 * 240
    )

    assert isinstance(found, decoders._DecoderComparison)
    assert found.files == 4 and found.now_s > 0 and found.then_s > 0
    assert found.low <= found.then_s / found.now_s <= found.high
    assert found.grey_levels < 2


@pytest.mark.quiet
def test_a_decoder_that_takes_twice_as_long_is_seen_to(files, monkeypatch):
    def twice(blobs):
        decode = decoders.find_decoder("pil").make(blobs)

        def both():
            for _ in decode():  # they are let go: twice as many at once need new memory
                pass
            return decode()

        return both

    slow = decoders.ImageDecoder("slow", twice)
    found = decoders.compare_decoders(decoders.find_decoder("pil"), slow, files, None)

    assert isinstance(found, decoders._DecoderComparison)
    assert found.then_s / found.now_s == pytest.approx(2, rel=0.2)


def test_names_are_those_of_the_probe_in_any_case_or_short():
    assert (
        decoders.find_decoder("opencv")
        == decoders.find_decoder("cv2")
        == decoders.find_decoder("OpenCV")
    )
    for name in ("DALI mixed", "jpg", ""):
        with pytest.raises(ScriptError, match="unknown decoder"):
            decoders.find_decoder(name)


@pytest.mark.parametrize(
    ("operations", "name"),
    [
        (["PIL.JPEG", "PIL.convert"], "Pillow"),
        (["cv2.imdecode"], "OpenCV"),
        (["torchvision.decode_jpeg"], "torchvision.io"),
        (["PIL.JPEG", "cv2.imdecode"], None),
        (["webdataset.Decoder"], None),
        ([], None),
    ],
)
def test_the_trainings_own_decoder_is_told_from_its_operations(operations, name):
    found = decoders.recorded_decoder(operations)

    assert (found.name if found else None) == name


def test_files_that_one_of_them_does_not_read_are_named(files, tmp_path):
    (tmp_path / "data" / "cat").mkdir(parents=True)
    Image.new("RGB", (320, 240)).save(tmp_path / "data" / "cat" / "a.png")

    assert decoders.compare_decoders(
        decoders.find_decoder("pil"), decoders.find_decoder("turbo"), tmp_path / "data", None
    ) == ("simplejpeg does not read PNG, which is among these files")


def test_a_library_that_is_not_there_is_told(files, monkeypatch):
    def missing(blobs):
        raise ImportError("No module named 'simplejpeg'")

    found = decoders.compare_decoders(
        decoders.find_decoder("pil"), decoders.ImageDecoder("simplejpeg", missing), files, None
    )

    assert found == "simplejpeg cannot be measured: ImportError: No module named 'simplejpeg'"


@pytest.mark.parametrize(
    ("pixels", "alike"),
    [
        (320 * 240, True),
        (320 * 240 * 1.9, True),
        (320 * 240 * 2.1, False),
        (320 * 240 / 2.1, False),
    ],
)
def test_images_of_another_size_are_not_the_trainings(pixels, alike, files):
    images = decoders.photos.scan(files).photos

    assert (decoders._unlike(images, pixels) == "") is alike
