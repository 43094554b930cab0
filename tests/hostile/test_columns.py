"""Parquet files that claim, or unpack to, more than any recording holds are refused before they take the memory."""

import io
import os
import resource
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from feedline.__main__ import main
from feedline.analysis.traces import folder
from feedline.profiler.errors import FeedlineError, RunDamaged
from feedline.profiler.events import Stage
from feedline.profiler.files.parquet import _page_headers
from feedline.profiler.store.compact import read_compact

MOST_MB = 1024


def write(table: pa.Table, path: Path, **more: object) -> None:
    pq.write_table(table, path, **{"compression": "zstd", "use_dictionary": False, **more})


def repeated(path: Path, rows: int) -> None:
    """The file's first row, so many times."""
    table = pq.read_table(path)
    with pq.ParquetWriter(path, table.schema, compression="zstd", use_dictionary=False) as file:
        part = pa.table(
            [pa.array(np.zeros(1 << 20, field.type.to_pandas_dtype())) for field in table.schema],
            schema=table.schema,
        )
        for _ in range(rows >> 20):
            file.write_table(part)


def peak_mb_of(read: object, *arguments: object) -> tuple[float, str]:
    """Memory that a call takes in a process of its own, and the refusal it ends with."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            read(*arguments)
            os.write(writing, b"read")
        except FeedlineError as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    said = os.read(reading, 4096).decode()
    os.close(reading)
    return os.wait4(pid, 0)[2].ru_maxrss / 1024, said


@pytest.mark.parametrize("name", [pytest.param("events", marks=pytest.mark.long), "trace"])
def test_a_small_file_of_sixteen_million_rows_is_refused_in_little_memory(
    finished, traces, name, request
):
    run, read = (finished, read_compact) if name == "events" else (traces, folder.read)
    file = run / "rank0" / f"{name}.parquet"
    repeated(file, 16 << 20)
    assert file.stat().st_size < 20e6

    peak, said = peak_mb_of(read, run / "rank0")

    assert "claims 16,777,216 rows" in said and "rank0" in said
    assert peak < resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 + 100


def varint(number: int) -> bytes:
    """Thrift's, of a number that is not negative."""
    number <<= 1
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def page(unpacked: int, packed: int, encoding: int = 0, kind: int = 0) -> bytes:
    """A page with one value, as Parquet's Thrift has it: type, sizes, and a data page's values and encoding."""
    sizes = b"\x15" + varint(kind) + b"\x15" + varint(unpacked) + b"\x15" + varint(packed)
    return (
        sizes + b"\x2c\x15" + varint(1) + b"\x15" + varint(encoding) + b"\0" + b"\0" + bytes(packed)
    )


def test_the_pages_of_a_file_are_those_that_were_written(finished):
    file = finished / "rank0" / "events.parquet"
    about = pq.ParquetFile(file).metadata
    with file.open("rb") as opened:
        for index in range(about.num_columns):
            chunk = about.row_group(0).column(index)
            begin = chunk.data_page_offset
            found = _page_headers(opened, begin, begin + chunk.total_compressed_size)
            assert sum(one.values for one in found) == about.num_rows
            assert sum(one.header + one.unpacked for one in found) == chunk.total_uncompressed_size


@pytest.mark.parametrize(
    ("bytes_", "message"),
    [
        (page(1 << 30, 10), "a page unpacks to 1,073,741,824 bytes"),
        (page(8, 10, encoding=8), "an encoding that feedline does not write"),
        (page(8, 10, kind=2), "an encoding that feedline does not write"),
        (page(8, 10)[:-1], "extends beyond its column"),
        (page(8, 10)[:4], "has no header"),
        (b"\x2c" * 100, "nested too deeply"),
        (b"\x15" + b"\xff" * 100, "a number that does not end"),
        (b"\x19" * 10, "a field of an unexpected type"),
    ],
)
def test_a_page_that_feedline_does_not_write_is_refused(bytes_, message):
    with pytest.raises(ValueError, match=message):
        _page_headers(io.BytesIO(bytes_), 0, len(bytes_))


def test_a_footer_that_says_fewer_rows_than_its_pages_is_refused(finished):
    file = finished / "rank0" / "events.parquet"
    rows = pq.ParquetFile(file).metadata.num_rows
    content = file.read_bytes()
    footer = int.from_bytes(content[-8:-4], "little")
    varint = bytes([rows << 1 & 0x7F | 0x80, rows << 1 >> 7])
    assert content[-footer - 8 :].count(varint)
    file.write_bytes(
        content[: -footer - 8] + content[-footer - 8 :].replace(varint, bytes([2 | 0x80, 0]))
    )

    with pytest.raises(RunDamaged, match="rank0/events.parquet cannot be read"):
        read_compact(finished / "rank0")


CASES = {
    "a column that is missing": (
        lambda table: table.drop_columns("wall"),
        "column wall is missing",
    ),
    "a column of another type": (
        lambda table: table.set_column(1, "start", table["start"].cast(pa.float64())),
        "column start holds double",
    ),
    "a column that is there twice": (
        lambda table: table.append_column("wall", table["wall"]),
        "column wall is duplicated",
    ),
    "a null": (
        lambda table: table.set_column(
            2, "wall", pa.array([None, *table["wall"].to_pylist()[1:]], pa.int64())
        ),
        "column wall has nulls",
    ),
    "a time before any start": (
        lambda table: table.set_column(1, "start", pa.array(np.full(len(table), -5))),
        "column start: -5 in a record",
    ),
    "a time that overflows": (
        lambda table: table.set_column(1, "start", pa.array(np.full(len(table), 2**62))),
        "column start: 4611686018427387904",
    ),
    "a negative duration": (
        lambda table: table.set_column(2, "wall", pa.array(np.full(len(table), -7))),
        "column wall: -7",
    ),
    "sums that overflow": (
        lambda table: table.set_column(5, "nbytes", pa.array(np.full(len(table), 2**60))),
        "column nbytes: its sum does not fit",
    ),
    "a process that is not there": (
        lambda table: table.set_column(0, "process", pa.array(np.full(len(table), 9, np.uint16))),
        "there is no process 9",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_changed_column_is_named(finished, case):
    change, message = CASES[case]
    file = finished / "rank0" / "events.parquet"
    table = pq.read_table(file)
    write(change(table).replace_schema_metadata(table.schema.metadata), file)

    with pytest.raises(RunDamaged) as refused:
        read_compact(finished / "rank0")

    assert message in str(refused.value) and str(file) in str(refused.value)


def test_records_of_stages_that_a_newer_feedline_may_write_are_left_out(finished):
    file = finished / "rank0" / "events.parquet"
    whole = sum(len(process.records) for process in read_compact(finished / "rank0"))
    table = pq.read_table(file)
    stages = table["stage"].to_numpy().copy()
    stages[:5] = 200
    write(
        table.set_column(
            table.column_names.index("stage"), "stage", pa.array(stages)
        ).replace_schema_metadata(table.schema.metadata),
        file,
    )

    assert sum(len(process.records) for process in read_compact(finished / "rank0")) == whole - 5


TRACE_CASES = {
    "name": 10**6,
    "track": -1,
    "shape": -2,
    "collective": 10**6,
    "kind": 99,
    "wall": -1,
    "nbytes": -2,
}


@pytest.mark.parametrize("column", TRACE_CASES)
def test_a_changed_column_of_a_trace_is_named(traces, column):
    file = traces / "rank0" / "trace.parquet"
    table = pq.read_table(file)
    values = np.full(len(table), TRACE_CASES[column]).astype(table[column].type.to_pandas_dtype())
    write(
        table.set_column(
            table.column_names.index(column), column, pa.array(values)
        ).replace_schema_metadata(table.schema.metadata),
        file,
    )

    with pytest.raises(RunDamaged, match=rf"trace\.parquet cannot be read \(column {column}: "):
        folder.read(traces / "rank0")


def test_collectives_with_numbers_that_no_memory_holds_are_refused(bases, tmp_path, capsys):
    run = shutil.copytree(bases / "ranks", tmp_path / "ranks")
    file = run / "rank0" / "events.parquet"
    table = pq.read_table(file)
    numbers = table["number"].to_numpy().copy()
    numbers[np.flatnonzero(table["stage"].to_numpy() == Stage.COLLECTIVE)[1:]] += 10**9
    write(
        table.set_column(
            table.column_names.index("number"), "number", pa.array(numbers)
        ).replace_schema_metadata(table.schema.metadata),
        file,
    )

    main(["report", "--by-rank", str(run), "--processes", "1"])

    assert "numbered over a range of 1,000,000," in " ".join("".join(capsys.readouterr()).split())
