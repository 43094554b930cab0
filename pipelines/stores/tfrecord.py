"""TFRecord files, for TensorFlow and DALI.

Beside data-00000.tfrecord is data-00000.idx with a line ``offset length`` per sample, for DALI's
``fn.readers.tfrecord``.

A record is its length (8 bytes), the masked CRC-32C of those 8 bytes, the data, and the masked
CRC-32C of the data. The data is a ``tf.train.Example`` with the features image/encoded,
image/class/label (from 0) and image/filename, the names of TensorFlow's ImageNet files. Sources:
TensorFlow's record_writer.cc and hash/crc32c.h, example.proto, the protocol buffers' encoding.
"""

import os
import struct
from collections.abc import Callable, Iterable
from pathlib import Path

from feedline.pipelines.stores.index import Index, StoredSample
from feedline.pipelines.stores.packed import StoreKind
from feedline.pipelines.stores.shards import ShardStore, ShardWriter
from feedline.profiler.errors import MissingDependency

_MASK_DELTA = 0xA282EAD8
_BYTES_LIST, _INT64_LIST = 1, 3  # field numbers of tf.train.Feature


class _TFRecordWriter(ShardWriter):
    """Writes TFRecord shards."""

    suffix = "tfrecord"

    def __init__(self, folder: Path, shard_bytes: int, total_bytes: int) -> None:
        """Load the checksum's library. Raises MissingDependency."""
        super().__init__(folder, shard_bytes, total_bytes)
        self._crc32c = _crc32c()

    def frame(self, sample: StoredSample) -> tuple[list[bytes], int]:
        before = _example_before(sample)
        length = struct.pack("<Q", len(before) + len(sample.value))
        crc = self._crc32c(sample.value, self._crc32c(before, 0))
        start = length + _masked(self._crc32c(length, 0)) + before
        return [start, sample.value, _masked(crc)], len(start)

    def side_file(self, index: Index, rows: range) -> Iterable[str]:
        starts, lengths = index.records["start"], index.records["stored"]
        return (f"{int(starts[number])} {int(lengths[number])}\n" for number in rows)


class _TFRecordStore(ShardStore):
    """Reads TFRecord shards by sample number; needs no TensorFlow."""

    writer = _TFRecordWriter


def _crc32c() -> Callable[[bytes, int], int]:
    """Return a function for the CRC-32C of some bytes. Raises MissingDependency.

    It continues from that of the bytes before them.
    """
    try:
        import google_crc32c
    except ImportError as error:
        raise MissingDependency(
            "writing TFRecord files needs google-crc32c: pip install google-crc32c"
        ) from error

    def extend(data: bytes, before: int) -> int:
        return int(google_crc32c.extend(before, data))

    return extend


def _masked(crc: int) -> bytes:
    """Return the checksum as TensorFlow stores it.

    It is masked because the data may contain CRCs.
    """
    return struct.pack("<I", ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF)


def _example_before(sample: StoredSample) -> bytes:
    """Return the Example up to the value, which is at its end."""
    label = _field(_INT64_LIST, _field(1, _varint(sample.label)))
    path = _field(_BYTES_LIST, _field(1, os.fsencode(sample.path)))
    others = _entry(b"image/class/label", label) + _entry(b"image/filename", path)
    image = b""
    length = len(sample.value)
    for number in (1, _BYTES_LIST, 2):  # value of a list, list of a feature, value of a map's entry
        image = _tag(number, length) + image
        length += len(_tag(number, length))
    key = _field(1, b"image/encoded")
    features_head = _tag(1, len(key) + length)
    features_length = len(others) + len(features_head) + len(key) + length
    return _tag(1, features_length) + others + features_head + key + image


def _entry(key: bytes, feature: bytes) -> bytes:
    """Return an entry of the map of features."""
    return _field(1, _field(1, key) + _field(2, feature))


def _field(number: int, value: bytes) -> bytes:
    """Return a length-delimited field."""
    return _tag(number, len(value)) + value


def _tag(number: int, length: int) -> bytes:
    """Return the bytes before a length-delimited field (wire type 2)."""
    return _varint(number << 3 | 2) + _varint(length)


def _varint(value: int) -> bytes:
    """Encode a number >= 0, 7 bits per byte, the lowest first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _stored_bytes(size: int, path_bytes: int) -> int:
    """Return how much a file takes, at most."""
    return size + path_bytes + 16 + 160 + 32


TFRECORD = StoreKind(
    "tfrecord",
    "TensorFlow TFRecord files",
    _TFRecordWriter,
    _TFRecordStore,
    _stored_bytes,
    library=_crc32c,
)
