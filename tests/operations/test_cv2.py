"""OpenCV's built-in functions."""

import copy
import functools
import inspect
import pickle
import subprocess
import sys

import cv2
import numpy as np
import pytest

from feedline.profiler.events import Stage
from feedline.profiler.taps.operations import cv2_

PICTURE = np.arange(16 * 8 * 3, dtype=np.uint8).reshape(16, 8, 3)


def test_decoding_is_one_span_with_its_bytes_and_pixels(spans, encoded):
    data = np.frombuffer(encoded("JPEG"), np.uint8)

    (span,) = spans(lambda: cv2.imdecode(data, cv2.IMREAD_COLOR))

    assert (span.stage, span.name, span.nbytes, span.extra) == (Stage.DECODE, "cv2.imdecode", 64 * 48 * 3, 64 * 48)


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
    written = spans(lambda: cv2.flip(cv2.cvtColor(cv2.resize(PICTURE, (5, 4)), cv2.COLOR_BGR2RGB), 1))

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


@pytest.mark.parametrize("make", [lambda: cv2.imread, lambda: functools.partial(cv2.imread, flags=1)])
@pytest.mark.parametrize("copied", [lambda it: pickle.loads(pickle.dumps(it)), copy.copy, copy.deepcopy])
def test_a_function_can_be_pickled_and_copied_with_taps(taps, make, copied):
    twin = copied(make())

    assert getattr(twin, "func", twin) is cv2.imread


def test_what_was_pickled_with_taps_is_understood_without_feedline(taps):
    read = "import pickle, sys, cv2; f = pickle.load(sys.stdin.buffer); assert f is cv2.imread and 'feedline' not in sys.modules"

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
