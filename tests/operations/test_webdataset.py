"""webdataset: reading tar archives and decoding samples."""

import io
import tarfile
import time

import numpy as np
import pytest
import webdataset
from webdataset import tariterators

from feedline.profiler.events import Stage

pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed file:ResourceWarning"
)  # webdataset leaves closing to the garbage collector


@pytest.fixture
def archive(tmp_path, encoded):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        for number in range(3):
            for name, data in (
                (f"{number}.jpg", encoded("JPEG")),
                (f"{number}.cls", b"%d" % number),
            ):
                member = tarfile.TarInfo(name)
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return path


def samples(archive):
    return list(webdataset.WebDataset(str(archive), shardshuffle=False).decode("rgb8"))


def test_every_file_of_the_tar_is_a_read_of_its_bytes(spans, archive, encoded):
    written = [span for span in spans(lambda: samples(archive)) if span.name == "webdataset.tar"]

    assert [span.nbytes for span in written] == [len(encoded("JPEG")), 1] * 3 + [
        0
    ]  # the last looks for one more
    assert {span.stage for span in written} == {Stage.READ}


def test_decoding_a_sample_holds_pils_spans(spans, archive):
    written = spans(lambda: samples(archive))

    outer = [span for span in written if span.name == "webdataset.Decoder"]
    inner = [span for span in written if span.name == "PIL.JPEG"]
    assert len(outer) == len(inner) == 3
    assert all(
        o.start_ns <= i.start_ns and i.wall_ns <= o.wall_ns
        for o, i in zip(outer, inner, strict=True)
    )


def test_samples_are_the_same_with_and_without_us(spans, archive):
    plain, seen = samples(archive), []

    spans(lambda: seen.extend(samples(archive)))

    assert [sample["cls"] for sample in seen] == [0, 1, 2]
    assert all(np.array_equal(a["jpg"], b["jpg"]) for a, b in zip(plain, seen, strict=True))


def test_a_slow_archive_is_a_slow_read(spans, archive):
    class Slow(io.FileIO):
        def read(self, size=-1):
            time.sleep(0.005)
            return super().read(size)

    with Slow(str(archive)) as stream:
        written = spans(lambda: list(tariterators.tar_file_iterator(stream)))

    assert sum(span.wall_ns for span in written) >= 5e6


def test_a_tar_that_is_left_early_is_closed(taps, archive):
    closed = []

    def files():
        try:
            yield {"fname": "a", "data": b""}
            yield {"fname": "b", "data": b""}
        finally:
            closed.append(True)

    from feedline.profiler.taps.operations.webdataset_ import _spanned_iterator

    iterator = _spanned_iterator(files)()
    next(iterator)
    iterator.close()

    assert closed == [True]


def test_a_damaged_tar_raises_what_it_raises_without_us(spans):
    def use():
        with pytest.raises(tarfile.ReadError):
            list(tariterators.tar_file_iterator(io.BytesIO(b"no tar" * 200)))

    spans(use)
