"""WebDataset: tar files in which a sample is a sequence of members with the same base name.

00000012.jpg (the file), 00000012.cls (the label, decimal), 00000012.path. ``webdataset.WebDataset``
reads them, so do tar and DALI's ``fn.readers.webdataset``, for which data-00000.idx says where each
member is (its index version 1.2). Source: https://github.com/webdataset/webdataset and DALI's
documentation of ``wds2idx``.
"""

import os
import tarfile
from collections.abc import Iterable

from feedline.pipelines.stores.index import Index, StoredSample
from feedline.pipelines.stores.packed import StoreKind
from feedline.pipelines.stores.shards import ShardStore, ShardWriter

_TAR_BLOCK = tarfile.BLOCKSIZE


class _TarWriter(ShardWriter):
    """Writes tar shards."""

    suffix = "tar"
    end = bytes(2 * _TAR_BLOCK)

    def frame(self, sample: StoredSample) -> tuple[list[bytes], int]:
        pieces: list[bytes] = []
        for name, value in _members(
            sample.number, sample.ending, sample.value, sample.label, sample.path
        ):
            header = tarfile.TarInfo(name)  # its time is 0: packing twice gives the same bytes
            header.size = len(value)
            pieces += [header.tobuf(tarfile.GNU_FORMAT), value, bytes(-len(value) % _TAR_BLOCK)]
        return pieces, _TAR_BLOCK

    def side_file(self, index: Index, rows: range) -> Iterable[str]:
        yield f"v1.2 {len(rows)}\n"
        for number in rows:
            record, at, words = index.records[number], int(index.records[number]["start"]), []
            sample = _members(
                number, record["ending"].decode(), b"", int(record["label"]), index.path(number)
            )
            for place, (name, value) in enumerate(sample):
                length = len(value) if place else int(record["bytes"])
                words.append(f"{name.partition('.')[2]} {at + _TAR_BLOCK} {length} {name}")
                at += _TAR_BLOCK + length + -length % _TAR_BLOCK
            yield " ".join(words) + "\n"


class _TarStore(ShardStore):
    """Reads the tar shards of a store by sample number."""

    writer = _TarWriter


def _members(
    number: int, ending: str, value: bytes, label: int, path: str
) -> list[tuple[str, bytes]]:
    """Return names and contents of a sample's members, in their order."""
    contents = {ending: value, "cls": str(label).encode(), "path": os.fsencode(path)}
    return [(f"{number:08d}.{suffix}", content) for suffix, content in contents.items()]


def _stored_bytes(size: int, path_bytes: int) -> int:
    """Return how much a file takes, at most."""
    return (
        3 * _TAR_BLOCK
        + 12
        + sum(length + -length % _TAR_BLOCK for length in (size, 11, path_bytes))
        + 120
    )


TAR = StoreKind("tar", "WebDataset tar files", _TarWriter, _TarStore, _stored_bytes)
