"""An untrusted SQLite file of Nsight Systems, read in columns.

It can neither change, run nor swell anything. The file also says when it was recorded, on which
devices, and as which rank.
"""

import os
import re
import sqlite3
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from urllib.parse import quote

import numpy as np

from feedline.analysis.intervals import IntArray
from feedline.analysis.traces.trace_columns import DEFAULT, TraceLimits
from feedline.profiler.errors import TraceDamaged

THREADS = 0x1000000
_MAGIC = b"SQLite format 3\0"
BATCH = 65_536  # rows a time
# bytes: of what a program under the profiler printed, Nsight Systems makes one cell
_LONGEST_CELL = 64 << 20
_LONGEST_TEXT = 1 << 20  # bytes of a text that are kept
# bytes: pointer, payload size, row id, header (sqlite.org/fileformat2.html, 1.6): no intact table
# holds more rows
_SMALLEST_ROW = 4
_LOCK_PATIENCE_S = 2.0  # for another program's lock
EXPORT = "nsys export --type sqlite --output NEW.sqlite REPORT.nsys-rep"
TIMES = 1 << 61  # nanoseconds beyond which differences would not fit
_WAL = 2  # journal mode in bytes 18 and 19 of the header
META_TABLES = ("META_DATA_EXPORT", "EXPORT_META_DATA")  # since schema 3, and before it
_ENVIRONMENT = "TARGET_INFO_SYSTEM_ENV"
_CAPTURE = "META_DATA_CAPTURE"
_THREADS_NAMED = "ThreadNames"
#: (rank, number of ranks) as launchers pass them on: torchrun, Open MPI, PMIx, MPICH and Cray,
#: Slurm.
_LAUNCHER_VARIABLES = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMIX_RANK", "PMIX_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
#: Which of several machines, from torchrun and Slurm.
_NODE_VARIABLES = ("GROUP_RANK", "NODE_RANK", "SLURM_NODEID")
_WANTED = {*_NODE_VARIABLES, *(name for pair in _LAUNCHER_VARIABLES for name in pair)}
_NODE_ARGUMENT = re.compile(r"--node[-_]rank=(\d{1,6})")
_SET = re.compile(r'(?:^|[\0;\n])([A-Z_]+)="?(\d{1,9})"?(?=$|[\0;\n])')
# what Nsight Systems names the main thread of an MPI program
_MPI_RANK = re.compile(r"MPI Rank (\d{1,9})")


def process_of(global_tid: IntArray) -> IntArray:
    """Return the globalPid that each globalTid belongs to: int64 [n] -> int64 [n].

    Nsight Systems packs where an event happened into 64 bits: 8 of hardware, 8 of virtual machine,
    24 of process, 24 of thread; a globalPid has 0 for its thread. Source: Nsight Systems User
    Guide, "Common SQLite Examples", "Serialized Process and Thread Identifiers".
    """
    return global_tid - global_tid % THREADS


@dataclass(frozen=True)
class RowField:
    """One number of a row.

    Attributes:
        names: the columns that can hold it, the best first.
        default: where there is no such column, or no value.
    """

    names: tuple[str, ...]
    default: int = 0


class Database:
    """Tables of an open file.

    Attributes:
        path: what the user called it.
        tables: name -> its columns in lower case -> as they are spelled. Views and virtual tables
            are left out: they are programs.
    """

    def __init__(
        self, path: str, connection: sqlite3.Connection, size: int, limits: TraceLimits
    ) -> None:
        self.path, self._connection, self._limits = path, connection, limits
        self._most_rows, self._read = size // _SMALLEST_ROW + 1, 0
        tables = self._run(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'create virtual%'"
        ).fetchall()
        names = [
            name
            for (name,) in tables
            if isinstance(name, str) and name.replace("_", "").isalnum() and name.isascii()
        ]
        self.tables = {name: self._columns(name) for name in names}

    def _run(self, sql: str, values: Sequence[int] = ()) -> sqlite3.Cursor:
        return self._connection.execute(sql, values)

    def _columns(self, table: str) -> dict[str, str]:
        return {
            str(row[1]).lower(): str(row[1]) for row in self._run(f'PRAGMA table_info("{table}")')
        }

    def has(self, table: str, *columns: str) -> bool:
        """Tell whether the table is there with all of these columns."""
        return table in self.tables and all(
            column.lower() in self.tables[table] for column in columns
        )

    def read(self, table: str, fields: dict[str, RowField], where: str = "") -> dict[str, IntArray]:
        """Read numbers of a table; empty where there is no such table.

        Args:
            table: its name.
            fields: name -> where it is in the table.
            where: SQL of this package's own.

        Returns:
            for each field int64 [rows].
        """
        if table not in self.tables:
            return {name: np.zeros(0, np.int64) for name in fields}
        sources = [self._source(table, field) for field in fields.values()]
        query = f'SELECT {", ".join(sources)} FROM "{table}" NOT INDEXED {where}'
        parts = [
            np.fromiter(chain.from_iterable(batch), np.int64, len(batch) * len(sources)).reshape(
                -1, len(sources)
            )
            for batch in self._batches(table, query)
        ]
        whole = np.concatenate(parts) if parts else np.zeros((0, len(sources)), np.int64)
        return {name: np.ascontiguousarray(whole[:, number]) for number, name in enumerate(fields)}

    def _source(self, table: str, field: RowField) -> str:
        known = self.tables[table]
        columns = [known[name.lower()] for name in field.names if name.lower() in known]
        if not columns:
            return str(field.default)
        values = ", ".join(f'"{name}"' for name in columns)
        return f"CAST(COALESCE({values}, {field.default}) AS INTEGER)"

    def rows(
        self, table: str, columns: Sequence[str], where: str = ""
    ) -> Iterator[tuple[object, ...]]:
        """Yield cells of these columns, None where there is no such column.

        Nothing where there is no such table.
        """
        if table in self.tables:
            known = self.tables[table]
            sources = [
                f'"{known[name.lower()]}"' if name.lower() in known else "NULL" for name in columns
            ]
            for batch in self._batches(
                table, f'SELECT {", ".join(sources)} FROM "{table}" NOT INDEXED {where}'
            ):
                yield from batch

    def _batches(self, table: str, query: str) -> Iterator[list[tuple[object, ...]]]:
        cursor, seen = self._run(query), 0
        while batch := cursor.fetchmany(BATCH):
            seen += len(batch)
            self._read += len(batch)
            if self._read > self._limits.events:
                raise TraceDamaged(
                    f"{self.path} contains more than {self._limits.events:,} events: raise "
                    f"--max-events if memory allows"
                )
            if seen > self._most_rows:
                raise TraceDamaged(
                    f"{self.path}: its table {table} is cyclic, so the file is damaged: export it "
                    f"again ({EXPORT})"
                )
            yield batch

    def strings(self, ids: Iterable[int]) -> dict[int, str]:
        """Return texts of StringIds by number, without what is not there."""
        wanted = sorted(set(ids))
        if not wanted or not self.has("StringIds", "id", "value"):
            return {}
        texts: dict[int, str] = {}
        for first in range(0, len(wanted), 500):
            some = wanted[first : first + 500]
            marks = ",".join("?" * len(some))
            # StringIds.id is its key in every schema, so that this reads the wanted rows only:
            # others hold whole log files.
            for number, text in self._run(
                f"SELECT id, value FROM StringIds WHERE id IN ({marks})", some
            ):
                if isinstance(number, int) and isinstance(text, str):
                    texts[number] = text
        return texts


@contextmanager
def open_database(path: str, limits: TraceLimits = DEFAULT) -> Iterator[Database]:
    """Open a local file, read only.

    Raises:
        TraceDamaged: it is not a whole SQLite file, it is being written, what is read of it turns
            out damaged, or is more than the limits.
    """
    header, size = _looked_at(path)
    try:
        connection = sqlite3.connect(
            _address(path, header), uri=True, timeout=_LOCK_PATIENCE_S, isolation_level=None
        )
    except sqlite3.Error as error:
        raise TraceDamaged(_says(path, error)) from error
    try:
        _guard(connection)
        yield Database(path, connection, size, limits)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise TraceDamaged(_says(path, error)) from error
    finally:
        connection.close()


def _looked_at(path: str) -> tuple[bytes, int]:
    try:
        with open(path, "rb") as file:
            header = file.read(100)
            size = file.seek(0, os.SEEK_END)
    except OSError as error:
        raise TraceDamaged(f"{path} cannot be read: {error.strerror or error}") from error
    if not header:
        raise TraceDamaged(f"{path} is empty: export it again ({EXPORT})")
    if path.endswith((".nsys-rep", ".qdrep")):
        target = Path(path).with_suffix(".sqlite")
        raise TraceDamaged(
            f"{path} can only be read by Nsight Systems. Export it first: nsys export --type "
            f"sqlite --output {target} {path}"
        )
    if not _MAGIC.startswith(header[:16]) and header[:16] != _MAGIC:
        raise TraceDamaged(f"{path} is not an SQLite file: Nsight Systems writes one with {EXPORT}")
    page = int.from_bytes(header[16:18], "big")
    pages, fresh = int.from_bytes(header[28:32], "big"), header[24:28] == header[92:96]
    expected = pages * (65_536 if page == 1 else page) if fresh else 0
    if len(header) < 100 or size < expected:
        raise TraceDamaged(
            f"{path} is truncated: it has {size:,} of {max(expected, 100):,} bytes; copy or "
            f"export it again ({EXPORT})"
        )
    return header, size


def _address(path: str, header: bytes) -> str:
    """Open read-only.

    If no writer can exist, it is without the file that readers and writers of such a database
    share. A database in WAL mode needs that file even to be read, and a read-only folder takes
    none. Without a log beside it nothing is left to merge, so it may be read as it is. All others
    are opened with their locks in force: a writer is noticed.
    """
    alone = header[18] == _WAL and not Path(f"{path}-wal").exists()
    return f"file:{quote(os.path.abspath(path))}?mode=ro{'&immutable=1' if alone else ''}"


def _guard(connection: sqlite3.Connection) -> None:
    """Keep extensions off, forbid functions of the schema, look for damage.

    Cells are bounded.
    """
    connection.text_factory = _text
    if sys.version_info >= (3, 11):
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_CELL)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    for setting in (
        "trusted_schema = OFF",
        "cell_size_check = ON",
        "query_only = ON",
        "mmap_size = 0",
        "temp_store = MEMORY",
    ):
        connection.execute(f"PRAGMA {setting}").close()


def _text(cell: bytes) -> str:
    return cell[:_LONGEST_TEXT].decode("utf-8", "replace")


def _says(path: str, error: Exception) -> str:
    message = str(error)
    if "locked" in message or "busy" in message:
        return f"{path} is being written by another program: wait until its export has finished"
    if "not a database" in message:
        return (
            f"{path} is not an SQLite file, or is encrypted: Nsight Systems writes one with "
            f"{EXPORT}"
        )
    if "readonly" in message or "unable to open" in message:
        return f"{path} was left unfinished by its writer ({message}): export it again ({EXPORT})"
    return f"{path} is damaged ({message}): copy or export it again ({EXPORT})"


EVENT_ROW_DTYPE = np.dtype(
    [
        ("start", "<i8"),
        ("end", "<i8"),
        ("correlation", "<i8"),  # -1: none
        ("nbytes", "<i8"),  # -1: unknown
        ("process", "<i8"),  # globalPid
        ("place", "<i8"),  # globalTid on the host, stream on a device
        ("device", "<i4"),  # -1: the host
        ("context", "<i4"),
        ("name", "<i4"),
        ("shape", "<i4"),
        ("kind", "u1"),
    ]
)

START, END = RowField(("start",)), RowField(("end",), -1)


class Names:
    """Texts by number, each once."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        return self._numbers.setdefault(text, len(self._numbers))

    def all(self) -> list[str]:
        return list(self._numbers)

    def of_strings(
        self, database: Database, ids: IntArray, unnamed: str, clean: dict[str, str] | None = None
    ) -> IntArray:
        """Return the number of the name for each number of a string in the file.

        Args:
            database: the file.
            ids: int64 [n]: numbers of strings.
            unnamed: what to call what has no string.
            clean: filled with text -> name; None: the text is the name.
        """
        known, index = np.unique(ids, return_inverse=True)
        texts = database.strings(known.tolist())
        names = [texts.get(value) or unnamed for value in known.tolist()]
        named = [self(text if clean is None else clean.get(text, text)) for text in names]
        return np.array(named, np.int64)[index.reshape(-1)] if len(known) else np.zeros(0, np.int64)


@dataclass(frozen=True)
class Recording:
    """One recording.

    Attributes:
        maker: product and version.
        schema: of the export, e.g. "3.25.0"; "unknown".
        origin_ns: Unix time that times of events count from; 0: unknown, or events hold Unix time
            themselves.
        environment: what launchers pass on, and nothing else: an environment holds secrets.
        node: number of the machine among those of a job; 0: it is the only one, or the file does
            not say.
        threads: globalTid -> name.
        devices: number -> name.
    """

    maker: str
    schema: str
    origin_ns: int
    environment: Mapping[str, int]
    node: int
    threads: Mapping[int, str]
    devices: Mapping[int, str]


def recording_of(database: Database) -> Recording:
    """Read whatever is there of it."""
    meta: dict[str, str] = {}
    for table in META_TABLES:
        meta.update(
            (str(name), str(value)) for name, value in database.rows(table, ("name", "value"))
        )
    environment = _environment(database)
    return Recording(
        f"{meta.get('EXPORT_PRODUCT_NAME', 'Nsight Systems')} "
        f"{meta.get('EXPORT_PRODUCT_VERSION', '')}".strip(),
        meta.get("EXPORT_SCHEMA_VERSION", "unknown"),
        _origin_in_meta(database, meta),
        environment,
        _node(database, environment),
        _threads(database),
        {
            number: str(name)
            for number, name in database.rows("TARGET_INFO_GPU", ("id", "name"))
            if isinstance(number, int) and name
        },
    )


def _origin_in_meta(database: Database, meta: Mapping[str, str]) -> int:
    """Return what events count from, as the metadata says.

    It is the start of the session, unless the export was told ``--ts-normalize`` or ``--ts-shift``.
    """
    if meta.get("EXPORT_PARAM_TIME_NORMALIZE") == "true":
        return 0
    shift = meta.get("EXPORT_PARAM_TIME_SHIFT", "0")
    moved = int(shift) if re.fullmatch(r"-?\d{1,18}", shift) else 0
    for (began,) in database.rows("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",)):
        if isinstance(began, int) and 0 < began < 1 << 62:
            return began - moved
    return 0


def _environment(database: Database) -> dict[str, int]:
    texts = [
        f"{variable}" for (variable,) in database.rows(_CAPTURE, ("value",), "WHERE name LIKE "
                                                                             "'PROCESS_%:ENVIRONMENT_VARIABLE'")
    ] if database.has(_CAPTURE, "name", "value") else []  # fmt: skip
    if database.has(_ENVIRONMENT, "name", "value"):
        texts += [
            str(value)
            for (value,) in database.rows(
                _ENVIRONMENT, ("value",), "WHERE name = 'DeviceEnvironment'"
            )
        ]
    variables: dict[str, int] = {}
    for text in texts:
        for name, value in _SET.findall(text):
            if name in _WANTED:
                variables.setdefault(name, int(value))
    return variables


def _node(database: Database, environment: Mapping[str, int]) -> int:
    """Return the number of the machine from what nsys was told to start, else from the environment.

    torchrun --node_rank=1, in one argument or in two.
    """
    if database.has(_CAPTURE, "name", "value"):
        arguments = [
            str(value)
            for (value,) in database.rows(
                _CAPTURE, ("value",), "WHERE name LIKE 'PROCESS_%:ARGUMENT_%'"
            )
        ]
        for argument, following in zip(arguments, [*arguments[1:], ""]):
            match = _NODE_ARGUMENT.fullmatch(argument) or _NODE_ARGUMENT.fullmatch(
                f"{argument}={following}"
            )
            if match:
                return int(match[1])
    return next((environment[name] for name in _NODE_VARIABLES if name in environment), 0)


def _threads(database: Database) -> dict[int, str]:
    numbered = [(tid, name) for name, tid in database.rows(_THREADS_NAMED, ("nameId", "globalTid"))]
    texts = database.strings(name for _, name in numbered if isinstance(name, int))
    return {
        tid: texts[name]
        for tid, name in numbered
        if isinstance(tid, int) and isinstance(name, int) and name in texts
    }


def rank_of(
    process: int,
    only_process: bool,
    from_nccl: tuple[int, int] | None,
    known: Recording,
    named: Mapping[int, str],
) -> tuple[int | None, int | None]:
    """Return (rank, number of ranks) of a process, None where the file does not say.

    Looked for in what NCCL said of the largest communicator, in names of threads ("MPI Rank 3"),
    and in the environment of the recording where it started a single process that used a device: of
    several it says nothing that tells them apart.

    Args:
        process: its globalPid.
        only_process: no other process used a device.
        from_nccl: by NCCL.
        known: what the file says of its recording.
        named: globalTid -> name given through NVTX.
    """
    if from_nccl is not None:
        return from_nccl
    given = _launched(known.environment)
    for names in (named, known.threads):
        for thread, name in names.items():
            match = _MPI_RANK.fullmatch(name)
            if match and thread - thread % THREADS == process:
                return int(match[1]), given[1] if given[0] is not None and int(match[1]) < (
                    given[1] or 0
                ) else None
    return given if only_process else (None, None)


def _launched(environment: Mapping[str, int]) -> tuple[int | None, int | None]:
    for rank, size in _LAUNCHER_VARIABLES:
        if rank in environment:
            world = environment.get(size)
            return (
                (environment[rank], world)
                if world is None or environment[rank] < world
                else (None, None)
            )
    return None, None
