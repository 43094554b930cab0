"""Small files as Nsight Systems would write them, table by table, with exact truth."""

import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path

#: Columns of a recent schema; a test that wants an older one names its own.
COLUMNS = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "start end deviceId contextId streamId correlationId globalPid "
    "demangledName shortName",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start end deviceId contextId streamId correlationId globalPid "
    "bytes copyKind srcKind dstKind",
    "CUPTI_ACTIVITY_KIND_MEMSET": "start end deviceId contextId streamId correlationId globalPid "
    "value bytes memKind",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": "start end deviceId contextId streamId correlationId "
    "globalPid syncType",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "start end deviceId contextId streamId correlationId "
    "globalPid graphId",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start end eventClass globalTid correlationId nameId",
    "NVTX_EVENTS": "start end eventType text globalTid textId domainId int64Value jsonText "
    "jsonTextId",
    "OSRT_API": "start end globalTid nameId",
    "SCHED_EVENTS": "start cpu isSchedIn globalTid",
    "ThreadNames": "nameId globalTid",
    "TARGET_INFO_SYSTEM_ENV": "name value",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs",
    "TARGET_INFO_GPU": "id name",
    "META_DATA_EXPORT": "name value",
    "META_DATA_CAPTURE": "name value",
}
PUSHED, MARK, NAMES_A_THREAD, NAMES_A_DOMAIN = 59, 34, 39, 75


def gpid(pid: int) -> int:
    """globalPid of a process, on hardware 0 and the first virtual machine, as exports have it."""
    return (1 << 48) + (pid << 24)


def gtid(pid: int, tid: int) -> int:
    return gpid(pid) + tid


def export(
    path: Path,
    tables: Mapping[str, Iterable[Mapping[str, object]]],
    strings: Mapping[int, str] | None = None,
    columns: Mapping[str, str] | None = None,
) -> str:
    """Write a file; columns that a row does not name are NULL.

    Args:
        columns: table -> its columns, where they differ from COLUMNS.
    """
    connection = sqlite3.connect(path)
    connection.execute(
        "CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL)"
    )
    connection.executemany("INSERT INTO StringIds VALUES (?, ?)", (strings or {}).items())
    for table, rows in tables.items():
        names = (columns or {}).get(table, COLUMNS[table]).split()
        connection.execute(f"CREATE TABLE {table} ({', '.join(names)})")
        marks = ", ".join("?" * len(names))
        connection.executemany(
            f"INSERT INTO {table} VALUES ({marks})",
            [[row.get(name) for name in names] for row in rows],
        )
    connection.commit()
    connection.close()
    return str(path)


def kernel(
    start: int,
    end: int,
    pid: int = 10,
    device: int = 0,
    stream: int = 7,
    correlation: int = 0,
    name: int = 1,
) -> dict[str, object]:
    return {"start": start, "end": end, "deviceId": device, "contextId": device + 1, "streamId": stream, "correlationId": correlation,
            "globalPid": gpid(pid), "demangledName": name, "shortName": name}  # fmt: skip


def pushed(
    start: int,
    end: int | None,
    text: str | None = None,
    pid: int = 10,
    tid: int = 10,
    **more: object,
) -> dict[str, object]:
    return {
        "start": start,
        "end": end,
        "eventType": PUSHED,
        "text": text,
        "globalTid": gtid(pid, tid),
        "domainId": 0,
        **more,
    }


def call(
    start: int, end: int, correlation: int, name: int, pid: int = 10, tid: int = 10, kind: int = 0
) -> dict[str, object]:
    return {
        "start": start,
        "end": end,
        "eventClass": kind,
        "globalTid": gtid(pid, tid),
        "correlationId": correlation,
        "nameId": name,
    }
