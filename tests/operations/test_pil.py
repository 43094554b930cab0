"""PIL: opening, and loading with its reads told apart."""

import gc
import io
import pickle
import time

import pytest
from operations.conftest import SlowFile
from PIL import Image, ImageFile, ImageSequence, PngImagePlugin, UnidentifiedImageError

from feedline.profiler.events import Stage
from feedline.profiler.taps.operations.pil_ import _TimedFile


def of(stage, written):
    return [span for span in written if span.stage == stage]


def assert_no_stand_in(image):
    assert not any(isinstance(value, _TimedFile) for value in vars(image).values())


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "BMP", "GIF", "JPEG2000", "ICO"])
def test_one_load_is_one_decode_span_of_the_pictures_pixels(spans, encoded, kind):
    file = io.BytesIO(encoded(kind, sizes=[(64, 48)]) if kind == "ICO" else encoded(kind))

    written = spans(lambda: Image.open(file).load())

    (decode,) = of(Stage.DECODE, written)
    assert (decode.name, decode.extra) == (f"PIL.{kind}", 48 * 64)
    assert decode.nbytes == decode.extra * (1 if kind == "GIF" else 3)


def unhindered(span):
    """What it took without its waits for a core: others may want the same."""
    return span.wall_ns - span.runqueue_ns


def asleep(span):
    """What it neither computed nor wanted a core: code and memory may be cold."""
    return unhindered(span) - span.cpu_ns


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "BMP", "TIFF"])
def test_a_slow_file_shows_as_read_and_not_as_decode(spans, encoded, kind):
    file = SlowFile(encoded(kind))
    image = Image.open(file)
    file.reads = 0

    written = spans(image.load)

    (read,), (decode,) = of(Stage.READ, written), of(Stage.DECODE, written)
    planted = file.reads * SlowFile.delay_s * 1e9
    assert planted > 0
    assert planted <= read.wall_ns and unhindered(read) < 1.5 * planted + 10e6
    assert read.cpu_ns < 0.5 * planted
    # not one read escaped
    assert asleep(decode) - asleep(read) < 0.9 * SlowFile.delay_s * 1e9
    assert decode.start_ns <= read.start_ns
    assert read.start_ns + read.wall_ns <= decode.start_ns + decode.wall_ns


def test_a_slow_decoder_shows_as_decode_and_not_as_read(spans, encoded, monkeypatch):
    monkeypatch.setattr(
        PngImagePlugin.PngImageFile, "load_end", slow(PngImagePlugin.PngImageFile.load_end, 0.05)
    )

    written = spans(Image.open(io.BytesIO(encoded("PNG"))).load)

    (read,), (decode,) = of(Stage.READ, written), of(Stage.DECODE, written)
    assert decode.wall_ns - read.wall_ns >= 50e6
    assert unhindered(read) < 10e6


def slow(original, delay_s):
    def call(*args):
        time.sleep(delay_s)
        return original(*args)

    return call


def test_bytes_read_are_those_of_the_header_and_then_of_the_file(spans, encoded, tmp_path):
    path = tmp_path / "a.jpg"
    path.write_bytes(encoded("JPEG", quality=95))

    written = spans(lambda: Image.open(path).load())

    opening, loading = of(Stage.READ, written)
    assert (opening.name, loading.name) == ("PIL.open", "PIL.read")
    assert 100 < opening.nbytes < 1000
    assert loading.nbytes == path.stat().st_size  # a JPEG is loaded from its beginning


def test_bytes_in_memory_are_nothing_that_was_read(spans, encoded):
    file = io.BytesIO(encoded("JPEG"))

    written = spans(lambda: Image.open(file).load())

    assert [span.nbytes for span in of(Stage.READ, written)] == [0, 0]


def test_a_loaded_image_is_not_counted_again(spans, encoded):
    image = Image.open(io.BytesIO(encoded("JPEG")))
    image.load()

    assert spans(lambda: (image.load(), image.getpixel((0, 0)))) == []


def test_an_override_that_calls_the_inherited_load_is_one_span(spans, encoded):
    class Twice(PngImagePlugin.PngImageFile):
        def load(self):
            time.sleep(0.03)
            return super().load()

    image = Twice(io.BytesIO(encoded("PNG")))

    (decode,) = of(Stage.DECODE, spans(image.load))

    assert decode.wall_ns >= 30e6
    assert spans(image.load) == []


def test_convert_from_a_file_is_decoding_and_holds_the_load(spans, encoded):
    image = Image.open(io.BytesIO(encoded("JPEG")))

    load, convert = of(Stage.DECODE, spans(lambda: image.convert("L")))

    assert (load.name, convert.name) == ("PIL.JPEG", "PIL.convert")
    assert convert.start_ns <= load.start_ns and load.wall_ns <= convert.wall_ns
    assert load.extra + convert.extra == 48 * 64


def test_convert_of_any_other_image_is_augmentation(spans):
    (span,) = spans(lambda: Image.new("RGB", (8, 8)).convert("L"))

    assert (span.stage, span.name, span.extra) == (Stage.AUGMENT, "PIL.convert", 64)


def test_operations_on_images_are_augmentation_with_the_results_pixels(spans):
    image = Image.new("RGB", (16, 8))

    written = spans(
        lambda: (image.resize((4, 4)), image.crop((0, 0, 5, 2)), image.rotate(90, expand=True))
    )

    outer = [
        (span.stage, span.name, span.extra) for span in written if span.name != "PIL.transpose"
    ]  # rotate by 90 is one
    assert outer == [
        (Stage.AUGMENT, "PIL.resize", 16),
        (Stage.AUGMENT, "PIL.crop", 10),
        (Stage.AUGMENT, "PIL.rotate", 128),
    ]


def test_a_draft_counts_the_pixels_that_are_really_decoded(spans):
    file = io.BytesIO()
    Image.new("RGB", (256, 256)).save(file, "JPEG")
    image = Image.open(file)
    image.draft("RGB", (64, 64))

    (decode,) = of(Stage.DECODE, spans(image.load))

    assert decode.extra == 64 * 64


def test_a_truncated_image_raises_what_it_raises_without_us(spans, encoded):
    file = io.BytesIO(encoded("JPEG", quality=95)[:-2000])
    image = Image.open(file)
    raised = []

    def load():
        with pytest.raises(OSError) as caught:
            image.load()
        raised.append(str(caught.value))

    (decode,) = of(Stage.DECODE, spans(load))

    with pytest.raises(OSError) as plain:
        Image.open(io.BytesIO(file.getvalue())).load()
    assert raised == [str(plain.value)]
    assert (decode.nbytes, decode.extra) == (0, 0)
    assert image.fp is file
    assert_no_stand_in(image)


def test_a_file_that_is_no_image_raises_what_it_raises_without_us(spans):
    def open_it():
        with pytest.raises(UnidentifiedImageError):
            Image.open(io.BytesIO(b"no image at all"))

    (span,) = spans(open_it)

    assert (span.stage, span.nbytes) == (Stage.READ, 0)


def test_a_file_that_is_not_there_raises_what_it_raises_without_us(spans, tmp_path):
    def open_it():
        with pytest.raises(FileNotFoundError):
            Image.open(tmp_path / "none.jpg")

    assert len(spans(open_it)) == 1


@pytest.mark.parametrize("kind", ["GIF", "PNG", "TIFF", "WEBP"])
def test_frames_of_an_animation_are_the_same_as_without_us(spans, kind):
    file = io.BytesIO()
    frames = [Image.new("RGB", (8, 8), color) for color in ("red", "green", "blue")]
    frames[0].save(file, kind, save_all=True, append_images=frames[1:])
    plain = [
        frame.convert("RGB").tobytes()
        for frame in ImageSequence.Iterator(Image.open(io.BytesIO(file.getvalue())))
    ]
    image = Image.open(file)
    seen = []

    written = spans(
        lambda: seen.extend(
            frame.convert("RGB").tobytes() for frame in ImageSequence.Iterator(image)
        )
    )

    assert seen == plain
    assert len([span for span in of(Stage.DECODE, written) if span.extra]) == 3
    assert_no_stand_in(image)
    image.close()


def test_the_files_own_fate_is_pils_business(spans, encoded, tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(encoded("PNG"))
    image = Image.open(path)
    file = image.fp

    spans(image.load)

    assert file.closed
    assert image.fp is None
    assert_no_stand_in(image)


def test_a_file_of_the_users_stays_open(spans, encoded):
    file = io.BytesIO(encoded("JPEG"))

    spans(lambda: Image.open(file).load())

    assert not file.closed


def test_verify_and_close_work_in_a_sample_looked_at(spans, encoded, tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(encoded("PNG"))

    def use():
        Image.open(path).verify()
        with Image.open(path) as image:
            image.load()
        image.close()
        gc.collect()

    spans(use)


def test_exif_survives_and_keeps_no_stand_in(spans):
    file = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (8, 4)).save(file, "TIFF", exif=exif)
    image = Image.open(file)

    spans(image.load)

    assert not isinstance(getattr(image.getexif(), "fp", None), _TimedFile)
    assert image.size == (4, 8)


def test_a_loaded_image_can_be_pickled_and_copied(spans, encoded):
    image = Image.open(io.BytesIO(encoded("JPEG")))

    spans(image.load)

    assert pickle.loads(pickle.dumps(image)).tobytes() == image.copy().tobytes()


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_pixels_are_the_same_with_and_without_us(spans, encoded, kind):
    data = encoded(kind)
    seen = []

    spans(
        lambda: seen.append(Image.open(io.BytesIO(data)).convert("RGB").resize((20, 20)).tobytes())
    )

    assert seen == [Image.open(io.BytesIO(data)).convert("RGB").resize((20, 20)).tobytes()]


def test_an_image_without_tiles_fails_as_without_us(spans):
    def load():
        image = PngImagePlugin.PngImageFile.__new__(PngImagePlugin.PngImageFile)
        with pytest.raises(AttributeError):
            image.load()

    assert spans(load) == []


def test_every_class_that_loads_in_its_own_way_is_covered_and_uncovered():
    from feedline.profiler.taps import operations

    Image.init()

    def loads(cls):
        return {
            cls: vars(cls).get("load"),
            **{c: f for sub in cls.__subclasses__() for c, f in loads(sub).items()},
        }

    before = loads(ImageFile.ImageFile)
    undo = operations.attach(lambda *_: None)
    during = loads(ImageFile.ImageFile)
    undo()

    assert {cls for cls in before if before[cls] is not during[cls]} == {
        cls for cls in before if before[cls] is not None
    }
    assert loads(ImageFile.ImageFile) == before
    assert "__init_subclass__" not in vars(ImageFile.ImageFile)
