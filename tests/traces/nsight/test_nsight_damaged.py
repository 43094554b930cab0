"""Files that are no whole export: what is said, and that nothing is changed or run."""

import hashlib
import sqlite3
import sys
from pathlib import Path

import pytest
from traces.nsight.made_up import export, kernel

from feedline.analysis.traces.nsight.nsight_reader import read_nsight
from feedline.analysis.traces.trace_columns import TraceLimits
from feedline.profiler.errors import TraceDamaged

KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
PAGE = 4_096  # bytes, SQLite's default


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "made.sqlite"


def whole(file: Path, rows: int = 1) -> str:
    return export(
        file, {KERNELS: [kernel(10 * row, 10 * row + 5) for row in range(rows)]}, {1: "gemm"}
    )


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.sqlite", b"", "is empty: export it again"),
        ("a.json", b'{"traceEvents": []}' * 20, "is not an SQLite file"),
        (
            "a.nsys-rep",
            b"\x01\x02" * 99,
            "nsys export --type sqlite --output .*a.sqlite .*a.nsys-rep",
        ),
        ("a.sqlite", b"SQLite format 3\0" + b"\0" * 20, "is truncated"),
        ("a.sqlite", b"SQLite format 3\0" + b"\xff" * 4096, "damaged|truncated|not an SQLite file"),
    ],
)
def test_what_is_no_database_is_named_with_the_way_out(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TraceDamaged, match=message):
        read_nsight(str(tmp_path / name))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(TraceDamaged, match="none.sqlite cannot be read: No such file"):
        read_nsight(str(tmp_path / "none.sqlite"))


def test_a_file_that_was_cut_says_how_much_is_missing(file):
    content = Path(whole(file, 500)).read_bytes()
    file.write_bytes(content[:-5_000])
    with pytest.raises(
        TraceDamaged, match=rf"truncated: it has {len(content) - 5_000:,} of {len(content):,} bytes"
    ):
        read_nsight(str(file))


def test_pages_that_were_overwritten_are_found(file):
    content = bytearray(Path(whole(file, 2_000)).read_bytes())
    content[8_192:40_960] = b"\xff" * (40_960 - 8_192)
    file.write_bytes(content)
    with pytest.raises(TraceDamaged, match="is damaged"):
        read_nsight(str(file))


def test_a_database_of_another_program_is_not_taken_for_a_trace(file):
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE moz_places (id INTEGER, url TEXT)")
    connection.close()
    with pytest.raises(TraceDamaged, match="not from Nsight Systems"):
        read_nsight(str(file))


def test_a_schema_that_is_not_known_is_said_with_its_version(file):
    tables = {
        KERNELS: [{"begin": 1}],
        "META_DATA_EXPORT": [{"name": "EXPORT_SCHEMA_VERSION", "value": "9.1.0"}],
    }
    export(file, tables, columns={KERNELS: "begin finish gpu"})
    with pytest.raises(
        TraceDamaged, match="version 9.1.0; its table CUPTI_ACTIVITY_KIND_KERNEL lacks start or end"
    ):
        read_nsight(str(file))


def test_an_export_in_which_nothing_happened_says_what_to_record(file):
    with pytest.raises(TraceDamaged, match="nsys profile --trace=cuda,nvtx"):
        read_nsight(export(file, {KERNELS: []}, {1: "gemm"}))


def test_a_file_that_is_being_written_is_waited_for_and_named(file, monkeypatch):
    monkeypatch.setattr("feedline.analysis.traces.nsight.database._LOCK_PATIENCE_S", 0.05)
    writer = sqlite3.connect(whole(file), isolation_level=None)
    writer.execute("BEGIN EXCLUSIVE")
    with pytest.raises(TraceDamaged, match="being written by another program"):
        read_nsight(str(file))
    writer.execute("ROLLBACK")
    writer.close()
    assert len(read_nsight(str(file))) == 1


def test_reading_leaves_the_file_and_its_folder_as_they_were(file):
    before = hashlib.sha256(Path(whole(file)).read_bytes()).digest()
    read_nsight(str(file))
    assert hashlib.sha256(file.read_bytes()).digest() == before
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_a_database_in_wal_mode_is_read_without_making_files_beside_it(file):
    connection = sqlite3.connect(whole(file))
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    assert len(read_nsight(str(file))) == 1
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_a_path_may_hold_what_a_uri_may_not(tmp_path):
    folder = tmp_path / "a ?mode=rw#x%20"
    folder.mkdir()
    assert len(read_nsight(whole(folder / "b&immutable=1.sqlite"))) == 1


def test_a_view_that_never_ends_is_not_run(file):
    connection = sqlite3.connect(whole(file))
    connection.execute("DROP TABLE StringIds")
    connection.execute("CREATE VIEW NVTX_EVENTS AS WITH RECURSIVE n(start) AS (SELECT 1 UNION ALL "
                       "SELECT start + 1 FROM n) "
                       "SELECT start, start AS end, 59 AS eventType, 0 AS globalTid FROM n")  # fmt: skip
    connection.commit()
    connection.close()
    (trace,) = read_nsight(str(file))
    assert len(trace.events) == 1


def test_a_virtual_table_is_not_asked_anything(file):
    connection = sqlite3.connect(whole(file))
    connection.execute("PRAGMA writable_schema = ON")
    made = "CREATE VIRTUAL TABLE NVTX_EVENTS USING no_such_module(start, eventType)"
    connection.execute(
        "INSERT INTO sqlite_master VALUES ('table', 'NVTX_EVENTS', 'NVTX_EVENTS', 0, ?)", [made]
    )
    connection.commit()
    connection.close()
    assert len(read_nsight(str(file))[0].events) == 1


def test_a_table_whose_pages_are_used_again_and_again_ends(file):
    """Inner pages that all lead to one and the same: 4 MB that SQLite itself reads as tens of
    millions of rows.
    """
    content = bytearray(Path(whole(file, 100_000)).read_bytes())
    pages = [number for number in range(len(content) // PAGE) if content[number * PAGE] in (5, 13)]
    root = max(
        (one for one in pages if content[one * PAGE] == 5), key=lambda one: cells(content, one)
    )
    leaf, inner = [one for one in pages if content[one * PAGE] == 13][5:7]
    many = 500  # cells of 5 bytes from the end of the page, each a page and a row id
    page = bytearray(PAGE)
    page[0], page[3:5], page[5:7] = 5, many.to_bytes(2, "big"), (PAGE - 5 * many).to_bytes(2, "big")
    page[8:12] = (leaf + 1).to_bytes(4, "big")
    for cell in range(many):
        at = PAGE - 5 * (cell + 1)
        page[12 + 2 * cell : 14 + 2 * cell] = at.to_bytes(2, "big")
        page[at : at + 5] = (leaf + 1).to_bytes(4, "big") + b"\1"
    content[inner * PAGE : (inner + 1) * PAGE] = page
    for cell in range(cells(content, root)):
        at = root * PAGE + int.from_bytes(content[root * PAGE + 12 + 2 * cell :][:2], "big")
        content[at : at + 4] = (inner + 1).to_bytes(4, "big")
    content[root * PAGE + 8 : root * PAGE + 12] = (inner + 1).to_bytes(4, "big")
    file.write_bytes(content)

    with pytest.raises(TraceDamaged, match="is cyclic"):
        read_nsight(str(file))


def cells(content: bytearray, page: int) -> int:
    return int.from_bytes(content[page * PAGE + 3 : page * PAGE + 5], "big")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="sqlite3 has no limits before Python 3.11")
def test_a_cell_that_is_too_long_is_not_read_into_memory(file, monkeypatch):
    monkeypatch.setattr("feedline.analysis.traces.nsight.database._LONGEST_CELL", 10_000)
    with pytest.raises(TraceDamaged, match="too big"):
        read_nsight(export(file, {KERNELS: [kernel(1, 2)]}, {1: "x" * 50_000}))


def test_a_log_that_is_too_long_is_not_even_looked_at(file, monkeypatch):
    monkeypatch.setattr("feedline.analysis.traces.nsight.database._LONGEST_CELL", 10_000)
    (trace,) = read_nsight(export(file, {KERNELS: [kernel(1, 2)]}, {1: "gemm", 2: "x" * 50_000}))
    assert trace.names == ["gemm"]


def test_a_file_with_more_events_than_the_limit_is_refused_with_the_way_round(file):
    with pytest.raises(TraceDamaged, match="more than 100 events: raise --max-events"):
        read_nsight(whole(file, 101), TraceLimits.of(100))
