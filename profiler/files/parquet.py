"""Parquet files of a run folder. Schema and pages are checked before any value is unpacked.

A footer can claim anything, and a page unpacks into as much memory as its header says, up to 2 GB.
pyarrow has no limit for either, and a limit of the process would bind other threads of a program
that calls ``feedline.load``. So the page headers are read here first, and only what feedline writes
is let through: data pages of plain or delta-packed numbers. Their bytes are Thrift's compact
protocol (https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift,
PageHeader).

pyarrow's own ways from and to numpy import pandas, which takes a second of CPU: more than most
reports.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from feedline.profiler.errors import RunDamaged
from feedline.profiler.files.bounded import MOST_COLUMNS, one_line, opened

#: Rows that any file may have. More must be paid for with a packed byte each: recorded times cost
#: two or three, a bomb next to nothing.
_FREE_ROWS = 1 << 19
_MOST_TEXT = 100_000_000  # bytes: what pyarrow reads at most
# of a list in the footer: a trace of 100 million events has 200 row groups of 9 columns
_MOST_THRIFT_ITEMS = 1 << 16


class _Columns:
    """A Parquet file whose rows can be read in bounded memory.

    Attributes:
        rows: how many there are.
        names: of its columns.
    """

    def __init__(self, file: Any, path: Path) -> None:
        self.path = path
        self._file = pq.ParquetFile(
            file,
            page_checksum_verification=True,
            thrift_container_size_limit=_MOST_THRIFT_ITEMS,
            pre_buffer=False,
        )
        self._about = self._file.metadata
        self.rows: int = self._about.num_rows
        self.names: list[str] = self._file.schema_arrow.names
        _check(self._about, file)

    def metadata(self, key: bytes, most: int = _MOST_TEXT) -> bytes:
        """Return the metadata that the writer stored with the columns.

        Args:
            key: under which it is stored.
            most: bytes of it.

        Raises:
            ValueError: it is not there, or has more.
        """
        about = self._file.schema_arrow.metadata or {}
        if key not in about:
            raise ValueError(f"{key.decode()} is missing from its metadata")
        if len(about[key]) > most:
            raise ValueError(f"{key.decode()} in its metadata has {len(about[key]):,} bytes")
        return bytes(about[key])

    def into(self, target: npt.NDArray[np.void], also: Mapping[str, npt.NDArray[Any]]) -> None:
        """Fill arrays of ``rows`` with columns, a row group at a time.

        Args:
            target: structured: each field has the column of its name.
            also: column -> array.

        Raises:
            ValueError: a column is missing, of another type, or has nulls.
        """
        wanted = {name: target[name] for name in target.dtype.names or ()} | dict(also)
        for name, array in wanted.items():
            self._refuse_other(name, array.dtype)
        done = 0
        for group in range(self._file.num_row_groups):
            table = self._file.read_row_group(group, columns=list(wanted), use_threads=False)
            if done + table.num_rows > self.rows:
                raise ValueError("its row groups have more rows than its footer says")
            for name, array in wanted.items():
                if table[name].null_count:
                    raise ValueError(f"column {name} has nulls")
                at = done
                for values in _values(table[name], array.dtype):
                    array[at : at + len(values)] = values
                    at += len(values)
            done += table.num_rows
        if done != self.rows:
            raise ValueError(f"it has {done:,} rows, not {self.rows:,}")

    def _refuse_other(self, name: str, kind: np.dtype[Any]) -> None:
        there = [field.type for field in self._file.schema_arrow if field.name == name]
        if len(there) != 1:
            raise ValueError(f"column {name} is {'duplicated' if there else 'missing'}")
        if there[0] != pa.from_numpy_dtype(kind):
            raise ValueError(f"column {name} holds {there[0]}, not {kind}")


def _values(column: pa.ChunkedArray, kind: np.dtype[Any]) -> Iterator[npt.NDArray[Any]]:
    """Yield the numbers of a column without nulls, in parts."""
    for part in column.chunks:
        if len(part):
            yield np.frombuffer(part.buffers()[1], kind, len(part), part.offset * kind.itemsize)


def table_of(columns: Mapping[str, npt.NDArray[Any]]) -> pa.Table:
    """Return a table of contiguous arrays of equal length; it shares their memory."""
    arrays = [
        pa.Array.from_buffers(
            pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)]
        )
        for values in columns.values()
    ]
    return pa.Table.from_arrays(arrays, list(columns))


@contextmanager
def columns(path: Path, way_out: str) -> Iterator[_Columns]:
    """Open a file.

    Any error in it, including those found inside the block, becomes a one-line error.

    Args:
        path: of the file.
        way_out: how that sentence ends.

    Raises:
        RunDamaged: it is missing, not a regular file, cut off or changed.
    """
    try:
        with opened(path, MOST_COLUMNS) as file:
            yield _Columns(file, path)
    except (
        OSError,
        pa.ArrowException,
        MemoryError,
        LookupError,
        ValueError,
        TypeError,
        AttributeError,
        OverflowError,
    ) as error:
        raise RunDamaged(f"{path} cannot be read ({one_line(error)}): {way_out}") from error


def _check(about: pq.FileMetaData, file: Any) -> None:
    rows = packed = 0
    for number in range(about.num_row_groups):
        group = about.row_group(number)
        rows += group.num_rows
        for index in range(group.num_columns):
            chunk = group.column(index)
            if (
                chunk.has_dictionary_page
                or chunk.data_page_offset < 0
                or chunk.total_compressed_size < 0
            ):
                raise ValueError(
                    f"column {chunk.path_in_schema} has an encoding that feedline does not write"
                )
            headers = _page_headers(
                file, chunk.data_page_offset, chunk.data_page_offset + chunk.total_compressed_size
            )
            if sum(page.values for page in headers) != group.num_rows:
                raise ValueError(
                    f"column {chunk.path_in_schema} does not have {group.num_rows:,} values"
                )
            packed += chunk.total_compressed_size
    if rows != about.num_rows or rows < 0:
        raise ValueError(f"its footer says {about.num_rows:,} rows, its row groups have {rows:,}")
    if rows > max(_FREE_ROWS, packed):
        raise ValueError(
            f"it claims {rows:,} rows in {packed:,} bytes, fewer bytes than any recording needs"
        )


_MOST_PAGE = 16 << 20  # bytes, unpacked: pyarrow begins a new page at 1 MB
_MOST_HEADER = 4096  # bytes
_MOST_DEPTH = 4
_DATA, _DATA_V2 = 0, 3
_PLAIN, _DELTA_BINARY_PACKED = 0, 5
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _STRUCT = 1, 2, 3, 4, 5, 6, 7, 8, 12


@dataclass(frozen=True)
class _PageHeader:
    """Attributes: values, and bytes of its header, compressed and uncompressed."""

    values: int
    header: int
    packed: int
    unpacked: int


def _page_headers(file: BinaryIO, begin: int, end: int) -> list[_PageHeader]:
    """Return the pages of a column chunk.

    Args:
        file: open for reading.
        begin: its place in the file, bytes.
        end: the byte behind it.

    Raises:
        ValueError: they are not what feedline writes, do not fill the chunk, or unpack to more than
            pages have.
    """
    headers = []
    while begin < end:
        file.seek(begin)
        page = _page(file.read(_MOST_HEADER))
        begin += page.header + page.packed
        headers.append(page)
    if begin != end:
        raise ValueError("a page extends beyond its column")
    return headers


def _page(data: bytes) -> _PageHeader:
    reader = _ThriftReader(data)
    try:
        header = reader.struct(_MOST_DEPTH)
        v1: Any = header.get(5)
        v2: Any = header.get(8)
        kind, unpacked, packed = header[1], header[2], header[3]
        values, encoding = (
            (v1[1], v1[2]) if kind == _DATA else (v2[1], v2[4]) if kind == _DATA_V2 else (-1, -1)
        )
    except (LookupError, TypeError) as error:
        raise ValueError("a page has no header") from error
    if values < 0 or encoding not in (_PLAIN, _DELTA_BINARY_PACKED):
        raise ValueError("a page has an encoding that feedline does not write")
    if not (0 <= packed and 0 <= unpacked <= _MOST_PAGE):
        raise ValueError(f"a page unpacks to {unpacked:,} bytes")
    return _PageHeader(values, reader.at, packed, unpacked)


class _ThriftReader:
    """Thrift's compact protocol, as far as page headers need it: field number -> value.

    Raises IndexError, ValueError.
    """

    def __init__(self, data: bytes) -> None:
        self._data, self.at = data, 0

    def struct(self, depth: int) -> dict[int, Any]:
        if not depth:
            raise ValueError("a page's header is nested too deeply")
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._zigzag()
            fields[number] = self._value(head & 15, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE
        if kind in (_I16, _I32, _I64):
            return self._zigzag()
        if kind == _STRUCT:
            return self.struct(depth - 1)
        if kind not in (_BYTE, _DOUBLE, _BINARY):
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
