"""RecordIO as MXNet and DALI's ``fn.readers.mxnet`` read it.

There is one file data-00000.rec, and data-00000.idx with a line ``number<TAB>offset`` per sample.

A record is the magic word, a word with the part's kind (3 bits) and length (29 bits), the payload,
and zeros up to a multiple of 4. Where the payload itself has the magic word at a multiple of 4, the
writer cuts it out there, and the reader puts it back between the parts. The payload is an image
header (flag, label, id, id2: 24 bytes) and the file. Sources: dmlc-core's recordio.h and
mxnet.recordio.
"""

import struct
from collections.abc import Iterable
from pathlib import Path

from feedline.pipelines.stores.index import SPLIT_VALUE, Index, StoredSample
from feedline.pipelines.stores.packed import StoreKind
from feedline.pipelines.stores.shards import ShardStore, ShardWriter

_RECORDIO_MAGIC = struct.pack("<I", 0xCED7230A)
_PART_HEADER = struct.Struct("<II")  # magic, kind and length
_IMAGE_HEADER = struct.Struct("<IfQQ")
_MAX_LENGTH = (1 << 29) - 1
_NO_END = 1 << 62
_WHOLE, _FIRST, _MIDDLE, _LAST = 0, 1, 2, 3


class _RecordIOWriter(ShardWriter):
    """Writes RecordIO into one file."""

    suffix = "rec"

    def __init__(self, folder: Path, shard_bytes: int, total_bytes: int) -> None:
        """Make the writer; ``shard_bytes`` is not used.

        MXNet and DALI read one index with one file.
        """
        super().__init__(folder, _NO_END, total_bytes)

    def frame(self, sample: StoredSample) -> tuple[list[bytes], int]:
        header = _IMAGE_HEADER.pack(0, sample.label, sample.number, 0)
        if _RECORDIO_MAGIC in sample.value or _RECORDIO_MAGIC in header:
            parts = _split_at_magic(header + sample.value)
            if len(parts) > 1:
                return _frame_parts(parts), SPLIT_VALUE
        length = len(header) + len(sample.value)
        return [
            _head(_WHOLE, length) + header,
            sample.value,
            bytes(-length % 4),
        ], _PART_HEADER.size + _IMAGE_HEADER.size

    def side_file(self, index: Index, rows: range) -> Iterable[str]:
        starts = index.records["start"]
        return (f"{number}\t{int(starts[number])}\n" for number in rows)


class _RecordIOStore(ShardStore):
    """Reads RecordIO shards by sample number."""

    writer = _RecordIOWriter

    def unframe(self, frame: bytes) -> bytes:
        return _join_parts(frame)[_IMAGE_HEADER.size :]


def _head(kind: int, length: int) -> bytes:
    """Return the header of a part."""
    return _RECORDIO_MAGIC + struct.pack("<I", kind << 29 | length)


def _split_at_magic(payload: bytes) -> list[bytes]:
    """Cut a payload at every magic word at a multiple of 4, leaving the words out."""
    parts, begin, at = [], 0, payload.find(_RECORDIO_MAGIC)
    while at >= 0:
        if at % 4 == 0:
            parts.append(payload[begin:at])
            begin = at + 4
        at = payload.find(_RECORDIO_MAGIC, at + (1 if at % 4 else 4))
    return [*parts, payload[begin:]]


def _frame_parts(parts: list[bytes]) -> list[bytes]:
    """Return a record of one or more parts, as a list of pieces."""
    if len(parts) == 1:
        kinds = [_WHOLE]
    else:
        kinds = [_FIRST, *[_MIDDLE] * (len(parts) - 2), _LAST]
    return [
        piece
        for kind, part in zip(kinds, parts)
        for piece in (_head(kind, len(part)), part, bytes(-len(part) % 4))
    ]


def _join_parts(frame: bytes) -> bytes:
    """Join the parts of one record.

    Raises:
        ValueError: this is not a record, or it is cut off.
    """
    parts, at = [], 0
    while at + _PART_HEADER.size <= len(frame):
        magic, word = _PART_HEADER.unpack_from(frame, at)
        length = word & _MAX_LENGTH
        if magic != _PART_HEADER.unpack(_RECORDIO_MAGIC + _RECORDIO_MAGIC)[
            0
        ] or at + _PART_HEADER.size + length > len(frame):
            break
        parts.append(frame[at + _PART_HEADER.size : at + _PART_HEADER.size + length])
        at += _PART_HEADER.size + length + -length % 4
        if word >> 29 in (_WHOLE, _LAST):
            return _RECORDIO_MAGIC.join(parts)
    raise ValueError("no complete RecordIO record at this place")


def _stored_bytes(size: int, path_bytes: int) -> int:
    """Return the bytes that a file takes, at most.

    Except for magic words in it, once in about a hundred thousand photographs.
    """
    return size + _PART_HEADER.size + _IMAGE_HEADER.size + 3 + 24


RECORDIO = StoreKind(
    "recordio",
    "MXNet RecordIO files",
    _RecordIOWriter,
    _RecordIOStore,
    _stored_bytes,
    max_bytes=_MAX_LENGTH - _IMAGE_HEADER.size,
)
