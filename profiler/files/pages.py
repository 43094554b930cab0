"""Reads the page headers of a Parquet file. A footer can claim anything, and a page unpacks into as much memory as its header says.

Only what feedline writes is let through: data pages of plain or delta-packed numbers. The bytes are Thrift's compact protocol
(https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift, PageHeader).
"""

from dataclasses import dataclass
from typing import Any, BinaryIO

_MOST_PAGE = 16 << 20  # bytes, unpacked: pyarrow begins a new page at 1 MB
_MOST_HEADER = 4096  # bytes
_MOST_DEPTH = 4
_DATA, _DATA_V2 = 0, 3
_PLAIN, _DELTA_BINARY_PACKED = 0, 5
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, BINARY, _STRUCT = 1, 2, 3, 4, 5, 6, 7, 8, 12


@dataclass(frozen=True)
class Page:
    """Attributes: values, and bytes of its header, compressed and uncompressed."""

    values: int
    header: int
    packed: int
    unpacked: int


def pages(file: BinaryIO, begin: int, end: int) -> list[Page]:
    """The pages of a column chunk.

    Args:
        begin, end: its place in the file, bytes.

    Raises:
        ValueError: they are not what feedline writes, do not fill the chunk, or unpack to more than pages have.
    """
    found = []
    while begin < end:
        file.seek(begin)
        page = _page(file.read(_MOST_HEADER))
        begin += page.header + page.packed
        found.append(page)
    if begin != end:
        raise ValueError("a page extends beyond its column")
    return found


def _page(data: bytes) -> Page:
    reader = _Reader(data)
    try:
        header = reader.struct(_MOST_DEPTH)
        v1: Any = header.get(5)
        v2: Any = header.get(8)
        kind, unpacked, packed = header[1], header[2], header[3]
        values, encoding = (v1[1], v1[2]) if kind == _DATA else (v2[1], v2[4]) if kind == _DATA_V2 else (-1, -1)
    except (LookupError, TypeError) as error:
        raise ValueError("a page has no header") from error
    if values < 0 or encoding not in (_PLAIN, _DELTA_BINARY_PACKED):
        raise ValueError("a page has an encoding that feedline does not write")
    if not (0 <= packed and 0 <= unpacked <= _MOST_PAGE):
        raise ValueError(f"a page unpacks to {unpacked:,} bytes")
    return Page(values, reader.at, packed, unpacked)


class _Reader:
    """Thrift's compact protocol, as far as page headers need it: field number -> value. Raises IndexError, ValueError."""

    def __init__(self, data: bytes) -> None:
        self._data, self.at = data, 0

    def struct(self, depth: int) -> dict[int, Any]:
        if not depth:
            raise ValueError("a page's header is nested too deeply")
        found: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._zigzag()
            found[number] = self._value(head & 15, depth)
        return found

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE
        if kind in (_I16, _I32, _I64):
            return self._zigzag()
        if kind == _STRUCT:
            return self.struct(depth - 1)
        if kind not in (_BYTE, _DOUBLE, BINARY):
            raise ValueError("a page's header has a field of an unexpected type")
        size = {_BYTE: 1, _DOUBLE: 8}.get(kind) or self._varint()
        self.at += size
        return None

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) & 0x80:
            value |= (byte & 0x7F) << shift
            shift += 7
            if shift > 63:
                raise ValueError("a page's header contains a number that does not end")
        return value | byte << shift

    def _zigzag(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)
