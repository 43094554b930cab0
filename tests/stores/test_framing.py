"""RecordIO's and TFRecord's framing for any content, read back by readers written from the formats'
descriptions alone.
"""

import struct
from pathlib import Path

import google_crc32c
from hypothesis import given
from hypothesis import strategies as st

from feedline.pipelines.stores.index import SPLIT_VALUE, StoredSample
from feedline.pipelines.stores.recordio import (
    _IMAGE_HEADER,
    _RECORDIO_MAGIC,
    _frame_parts,
    _join_parts,
    _RecordIOStore,
    _RecordIOWriter,
    _split_at_magic,
)
from feedline.pipelines.stores.tfrecord import _masked, _TFRecordWriter, _varint

# Pieces that make magic words at all alignments, whole and half, likely.
pieces = st.one_of(
    st.binary(max_size=9),
    st.just(_RECORDIO_MAGIC),
    st.just(_RECORDIO_MAGIC[:2]),
    st.just(_RECORDIO_MAGIC[2:]),
)
values = st.one_of(
    st.lists(pieces, max_size=12).map(b"".join),
    st.sampled_from([0, 1, 3, 4, 5, 127, 128, 16383, 16384]).map(bytes),
)
labels = st.integers(0, 1 << 23)  # beyond 2**24 RecordIO's label, a float32, is not exact
paths = st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1, max_size=200)


def dmlc_parts(data: bytes) -> list[bytes]:
    """The parts of one record, as dmlc-core's recordio.h describes them; the payload has the magic
    word between them.
    """
    parts, at = [], 0
    while True:
        assert data[at : at + 4] == _RECORDIO_MAGIC
        (word,) = struct.unpack_from("<I", data, at + 4)
        kind, length = word >> 29, word & 0x1FFFFFFF
        assert (kind in (0, 1)) == (not parts)
        parts.append(data[at + 8 : at + 8 + length])
        at += 8 + (length + 3) // 4 * 4
        if kind in (0, 3):
            assert at == len(data), "nothing but the record"
            return parts


def fields(data: bytes) -> list[tuple[int, int | bytes]]:
    """A protocol buffer's fields: number, and a varint or bytes."""
    found: list[tuple[int, int | bytes]] = []
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = number()
        if key & 7 == 0:
            found.append((key >> 3, number()))
        else:
            assert key & 7 == 2
            length = number()
            found.append((key >> 3, data[at : at + length]))
            at += length
    assert at == len(data)
    return found


@given(values, labels)
def test_a_recordio_record_gives_back_its_header_and_its_value(value, label):
    pieces, skip = _RecordIOWriter(Path(), 1, 1).frame(StoredSample(7, value, label, "x", "jpg"))
    frame = b"".join(pieces)

    whole = _RECORDIO_MAGIC.join(dmlc_parts(frame))

    assert len(frame) % 4 == 0
    assert _IMAGE_HEADER.unpack(whole[:24]) == (0, float(label), 7, 0)
    assert whole[24:] == value
    assert (
        frame[skip : skip + len(value)] if skip != SPLIT_VALUE else _join_parts(frame)[24:]
    ) == value


@given(values)
def test_no_part_of_a_record_has_the_magic_word_where_a_reader_looks_for_it(value):
    parts = _split_at_magic(value)

    assert _RECORDIO_MAGIC.join(parts) == value
    assert all(
        part[at : at + 4] != _RECORDIO_MAGIC for part in parts for at in range(0, len(part), 4)
    )
    assert all(len(part) % 4 == 0 for part in parts[:-1])
    assert _join_parts(b"".join(_frame_parts(parts))) == value


@given(values, labels, paths)
def test_a_tfrecord_gives_back_all_three_features(value, label, path):
    pieces, skip = _TFRecordWriter(Path(), 1, 1).frame(StoredSample(7, value, label, path, "jpg"))
    frame = b"".join(pieces)
    (length,) = struct.unpack_from("<Q", frame)
    example = frame[12:-4]

    assert length == len(example)
    assert frame[8:12] == _masked(google_crc32c.value(frame[:8]))
    assert frame[-4:] == _masked(google_crc32c.value(example))
    assert frame[skip : skip + len(value)] == value
    ((one, features),) = fields(example)
    entries = [dict(fields(entry)) for number, entry in fields(features) if number == one == 1]
    kinds = {entry[1]: fields(entry[2]) for entry in entries}
    assert kinds == {
        b"image/class/label": [(3, b"\x0a" + _varint(len(_varint(label))) + _varint(label))],
        b"image/filename": [(1, b"\x0a" + _varint(len(path.encode())) + path.encode())],
        b"image/encoded": [(1, b"\x0a" + _varint(len(value)) + value)],
    }


def test_the_mask_is_that_of_tensorflow():
    """The CRC of RFC 3720's 32 zero bytes, masked by hand: rotated right by 15 bits, plus
    0xA282EAD8.
    """
    crc = google_crc32c.value(bytes(32))

    assert crc == 0x8A9136AA
    assert _masked(crc) == struct.pack(
        "<I", (((crc >> 15) | (crc << 17 & 0xFFFFFFFF)) + 0xA282EAD8) % 2**32
    )


def test_a_value_with_the_magic_word_comes_back_out_of_a_store(tmp_path):
    from feedline.pipelines.stores import open_store, pack, verify

    png = (
        b"\x89PNG\r\n\x1a\n" + _RECORDIO_MAGIC + b"yz" + _RECORDIO_MAGIC * 2
    )  # aligned with the 24 bytes before it
    (tmp_path / "in" / "a").mkdir(parents=True)
    (tmp_path / "in" / "a" / "1.png").write_bytes(png)

    store = open_store(pack(tmp_path / "in", tmp_path / "store", "recordio").path)

    assert isinstance(store, _RecordIOStore)
    assert store.index.records["skip"][0] == SPLIT_VALUE
    assert store[0] == (png, 0)
    assert verify(tmp_path / "store").samples == 1
