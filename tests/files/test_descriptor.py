"""Files that are mapped without keeping a descriptor, also where the kernel's pages are large."""

import ctypes
import errno
import mmap
from pathlib import Path

import pytest

from feedline.profiler.events import Stage
from feedline.profiler.files import descriptor
from feedline.profiler.files.descriptor import Mapping
from feedline.profiler.store.segment import Segment, window_of
from feedline.profiler.store.segment_reader import read_segment

CONTENT = bytes(range(256)) * 64


@pytest.mark.parametrize("offset", [0, 4096, 4106, 12345])
def test_a_mapping_begins_anywhere_in_its_file(tmp_path, offset):
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    with open(path, "r+b") as file:
        mapping = Mapping(file.fileno(), 100, offset)

    assert bytes(mapping.view) == CONTENT[offset : offset + 100]
    mapping.view[:4] = b"mine"
    assert path.read_bytes() == CONTENT[:offset] + b"mine" + CONTENT[offset + 4 :]
    assert str(path) in Path("/proc/self/maps").read_text()
    mapping.close()
    assert str(path) not in Path("/proc/self/maps").read_text()


@pytest.fixture(params=[16, 64])
def large_pages(request, monkeypatch):
    """A kernel with pages of so many KiB, as they are on ARM and POWER."""
    page, real = request.param * 1024, descriptor._libc.mmap

    def of_large_pages(address, size, protection, flags, number, offset):
        if offset % page:
            ctypes.set_errno(errno.EINVAL)
            return descriptor._FAILED
        return real(address, size, protection, flags, number, offset)

    monkeypatch.setattr(mmap, "ALLOCATIONGRANULARITY", page)
    monkeypatch.setattr(descriptor._libc, "mmap", of_large_pages)


def test_records_are_written_on_a_kernel_with_large_pages(tmp_path, large_pages):
    path, number = tmp_path / "segments" / "main.seg", 0
    for until in (300, 700, 9000):  # it is continued, grows, and forgets windows
        segment = Segment(path, {"role": "main"}, 512 * 1024)
        while number < until:
            segment.window = window_of(0, number)
            segment.add(Stage.SAMPLE, number, 7)
            number += 1
        process = read_segment(path)
        assert segment.stopped is None
        assert process.totals[Stage.SAMPLE, :2].tolist() == [number, 7 * number]
        if number < 1000:
            assert process.records["start"].tolist() == list(range(number))
        segment.close()
    assert process.stride > 1
