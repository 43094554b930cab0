"""OpenCV's built-in functions, and videos."""

import copy
import functools
import inspect
import io
import pickle
import subprocess
import sys
from types import ModuleType

import cv2
import numpy as np
import pytest

from feedline.profiler.events import Stage
from feedline.profiler.taps.operations import cv2_
from feedline.profiler.taps.operations.library import Tap

PICTURE = np.arange(16 * 8 * 3, dtype=np.uint8).reshape(16, 8, 3)


def test_decoding_is_one_span_with_its_bytes_and_pixels(spans, encoded):
    data = np.frombuffer(encoded("JPEG"), np.uint8)

    (span,) = spans(lambda: cv2.imdecode(data, cv2.IMREAD_COLOR))

    assert (span.stage, span.name, span.nbytes, span.extra) == (
        Stage.DECODE,
        "cv2.imdecode",
        64 * 48 * 3,
        64 * 48,
    )


def test_imread_is_one_span_of_decoding(spans, encoded, tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(encoded("PNG"))

    (span,) = spans(lambda: cv2.imread(str(path)))

    assert (span.stage, span.name, span.extra) == (Stage.DECODE, "cv2.imread", 64 * 48)


def test_a_file_that_is_not_there_is_none_as_without_us(spans, tmp_path):
    results = []

    (span,) = spans(lambda: results.append(cv2.imread(str(tmp_path / "none.png"))))

    assert results == [None]
    assert (span.nbytes, span.extra) == (0, 0)


def test_operations_are_augmentation_with_the_results_pixels(spans):
    written = spans(
        lambda: cv2.flip(cv2.cvtColor(cv2.resize(PICTURE, (5, 4)), cv2.COLOR_BGR2RGB), 1)
    )

    assert [(span.stage, span.name, span.extra) for span in written] == [
        (Stage.AUGMENT, "cv2.resize", 20),
        (Stage.AUGMENT, "cv2.cvtColor", 20),
        (Stage.AUGMENT, "cv2.flip", 20),
    ]


def test_results_are_the_same_and_errors_pass(spans):
    plain = cv2.GaussianBlur(PICTURE, (3, 3), 0)

    def use():
        assert np.array_equal(cv2.GaussianBlur(PICTURE, ksize=(3, 3), sigmaX=0), plain)
        with pytest.raises(cv2.error):
            cv2.resize(PICTURE, (0, 0))

    assert len(spans(use)) == 2


@pytest.mark.parametrize(
    "make", [lambda: cv2.imread, lambda: functools.partial(cv2.imread, flags=1)]
)
@pytest.mark.parametrize(
    "copied", [lambda it: pickle.loads(pickle.dumps(it)), copy.copy, copy.deepcopy]
)
def test_a_function_can_be_pickled_and_copied_with_taps(taps, make, copied):
    twin = copied(make())

    assert getattr(twin, "func", twin) is cv2.imread


def test_what_was_pickled_with_taps_is_understood_without_feedline(taps):
    read = (
        "import pickle, sys, cv2; f = pickle.load(sys.stdin.buffer); assert f is cv2.imread "
        "and 'feedline' not in sys.modules"
    )

    subprocess.run([sys.executable, "-c", read], input=pickle.dumps(cv2.imread), check=True)


def test_a_function_kept_from_a_recording_can_be_pickled_after_it():
    from feedline.profiler.taps import operations

    undo = operations.attach(lambda *_: None)
    kept = cv2.imread
    undo()

    assert kept is not cv2.imread
    assert pickle.loads(pickle.dumps(kept)) is cv2.imread


def test_in_a_class_it_is_no_method_as_a_builtin_is_none(taps):
    class Data:
        flip = cv2.flip

    assert np.array_equal(Data().flip(PICTURE, 1), PICTURE[:, ::-1])


def test_it_still_looks_like_the_function(taps):
    assert cv2.imread.__name__ == "imread"
    assert cv2.imread.__doc__.startswith("imread(")
    assert inspect.isroutine(cv2.imread) and callable(cv2.imread)


def test_every_function_on_the_list_is_replaced(taps):
    names = [*cv2_.DECODERS, *cv2_.OPERATIONS]

    assert taps["cv2"][0]
    assert [name for name in names if not hasattr(getattr(cv2, name), "__wrapped__")] == []


@pytest.fixture(scope="module")
def film(tmp_path_factory):
    """Eight frames of 64 x 48 pixels, each a JPEG."""
    path = str(tmp_path_factory.mktemp("films") / "film.avi")
    writer = cv2.VideoWriter(path, cv2.VideoWriter_fourcc(*"MJPG"), 25, (64, 48))
    for number in range(8):
        writer.write(np.full((48, 64, 3), 30 * number, np.uint8))
    writer.release()
    return path


def test_a_frame_of_a_video_is_one_span_of_decoding_with_its_bytes(spans, film):
    video = cv2.VideoCapture(film)
    frames = []

    written = spans(lambda: frames.extend(video.read() for _ in range(8)))

    assert {(span.stage, span.name, span.nbytes, span.extra) for span in written} == {
        (Stage.DECODE, "cv2.VideoCapture.read", 64 * 48 * 3, 0)
    }
    assert (
        len(written) == 8
        and abs(int(frames[7][1].mean()) - 210) < 5
        and min(span.wall_ns for span in written) > 0
    )


def test_skipping_and_seeking_in_a_video_are_decoding_too(spans, film):
    video = cv2.VideoCapture(film)

    written = spans(lambda: (video.set(cv2.CAP_PROP_POS_FRAMES, 5), video.grab(), video.retrieve()))

    assert [(span.name, span.nbytes) for span in written] == [
        ("cv2.VideoCapture.set", 0),
        ("cv2.VideoCapture.grab", 0),
        ("cv2.VideoCapture.retrieve", 64 * 48 * 3),
    ]


def test_at_the_end_of_a_video_there_is_no_frame_as_without_us(spans, film):
    video = cv2.VideoCapture(film)
    results = []

    written = spans(lambda: results.extend(video.read() for _ in range(9)))

    assert results[8] == (False, None) and written[8].nbytes == 0


def test_a_video_is_what_it_was_while_taps_are_attached_and_afterwards(film):
    from feedline.profiler.taps import operations

    kind, before = cv2.VideoCapture, {name: vars(cv2.VideoCapture)[name] for name in cv2_._FRAMES}
    opened = cv2.VideoCapture(film)
    undo = operations.attach(lambda *_: None)
    try:
        # no subclass: OpenCV frees its objects wrongly, with and without feedline, and the process
        # crashes some time later
        assert type(opened) is cv2.VideoCapture is kind and isinstance(opened, kind)
        assert opened.read()[0] and cv2.VideoCapture.read(opened)[0]
        assert pickle.loads(pickle.dumps(cv2.VideoCapture)) is kind
        assert pickle.loads(pickle.dumps(cv2.VideoCapture.read)) == before["read"]
        with pytest.raises(TypeError):
            cv2.VideoCapture.read("no video")
    finally:
        undo()

    assert {name: vars(cv2.VideoCapture)[name] for name in cv2_._FRAMES} == before
    assert opened.read()[0]


def test_a_build_whose_types_cannot_be_changed_is_left_alone_and_named():
    other = ModuleType("cv2")
    other.imread, other.VideoCapture = cv2.imread, io.BytesIO
    tap = Tap(late=False)

    cv2_.install(tap, other)

    assert len(tap.left) == 1 and tap.left[0].startswith("cv2.VideoCapture cannot be replaced"), (
        tap.left
    )
    assert other.imread is not cv2.imread
    tap.undo()
    assert other.imread is cv2.imread
