"""NVTX ranges and what they say of kernels.

PyTorch (``torch.autograd.profiler.emit_nvtx``), NCCL, feedline and users write them.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from feedline.analysis.intervals import IntArray
from feedline.analysis.traces.nsight.database import (
    BATCH,
    EVENT_ROW_DTYPE,
    THREADS,
    TIMES,
    Database,
    Names,
    RowField,
    process_of,
)
from feedline.analysis.traces.trace_columns import CollectiveArgs, Kind, Rows, Shape

TABLE = "NVTX_EVENTS"
#: ENUM_NSYS_EVENT_TYPE of schema 3.25.
_MARKS, _RANGES = (34, 65), (59, 60, 70, 71)
_THREAD_NAME, _DOMAIN = (39, 72), 75
_OWN_DOMAIN = "feedline"
_LONGEST_PAYLOAD = 65_536  # characters of JSON
_MOST_INPUTS = 4_096
_NVTX_COLUMNS = (
    "eventType",
    "start",
    "end",
    "globalTid",
    "domainId",
    "text",
    "textId",
    "jsonText",
    "jsonTextId",
    "int64Value",
    "uint64Value",
)

#: What emit_nvtx appends to a name (torch/csrc/profiler/util.cpp, getNvtxStr). An operator's number
#: makes every text another one.
_SEQUENCE, _NUMBER, _SIZES, _INPUTS = "seq = ", "op_id = ", "sizes = ", ", input_op_ids = "
_APPENDED = (_SEQUENCE, _NUMBER, _SIZES)
# record_function of PyTorch's own Python code
_SCOPED = ("FSDP::", "ProfilerStep", "DistributedDataParallel")
_MESSAGE_BYTES = "Message size [bytes]"
_COMMUNICATOR = "NCCL communicator ID"
_NUMBER_OF_RANKS = "No. of ranks"
_RANK = "Rank"
_BEGUN = ("ncclCommInitRank", "ncclCommInitRankConfig", "ncclCommInitRankScalable")
_KERNEL_NAMES = ("nccl", "rccl")
_ONE_BYTE = "Byte"  # the payload counts bytes, whatever they mean


@dataclass(eq=False)
class _Payload:
    """A range of NCCL's with what NCCL says of it."""

    row: int
    name: str
    said: dict[str, object]


@dataclass(eq=False)
class TracedRanges:
    """All ranges of a file.

    Attributes:
        rows: on the host's threads.
        shapes: what their ``shape`` is an index into.
        threads: globalTid -> name given through NVTX.
        nccl: of NCCL's domain, in order of the table.
    """

    rows: Rows
    shapes: list[Shape] = field(default_factory=list)
    threads: dict[int, str] = field(default_factory=dict)
    nccl: list[_Payload] = field(default_factory=list)


class _RangeReader:
    def __init__(self, names: Names) -> None:
        self.names = names
        self.shapes: dict[str, int] = {}
        self.known: list[Shape] = []
        self.domains: dict[tuple[int, int], str] = {}
        self._torch: dict[tuple[str, bool], tuple[int, Kind]] = {}

    def range(self, tid: int, domain: int, text: str) -> tuple[int, int, Kind]:
        """Return (name, shape, kind) of a text.

        A domain comes before its name, as nsys stats prints it.
        """
        if domain:
            return (
                self.names(
                    f"{self.domains.get((tid // THREADS, domain)) or _guess(domain, text)}:{text}"
                ),
                -1,
                Kind.ANNOTATION,
            )
        name, _, appended = text.partition(", ")
        if not appended.startswith(_APPENDED):
            cut = min((at for mark in _APPENDED if (at := text.find(f", {mark}")) >= 0), default=-1)
            if cut < 0:
                return self.names(text), -1, Kind.ANNOTATION
            name, appended = text[:cut], text[cut + 2 :]
        key = name, appended.startswith(_SEQUENCE)
        named = self._torch.get(key)
        if named is None:
            named = self._torch[key] = (
                self.names(name),
                Kind.OPERATOR if _is_operator(*key) else Kind.ANNOTATION,
            )
        at = appended.find(_SIZES)
        return (
            named[0],
            self._shape(appended[at + len(_SIZES) :].partition(_INPUTS)[0]) if at >= 0 else -1,
            named[1],
        )

    def _shape(self, sizes: str) -> int:
        if sizes not in self.shapes:
            shape = _shape(sizes)
            if shape is not None:
                self.known.append(shape)
            self.shapes[sizes] = len(self.known) - 1 if shape is not None else -1
        return self.shapes[sizes]


def read_ranges(database: Database, names: Names, last: int) -> TracedRanges:
    """Read every range and mark.

    Args:
        database: the file.
        names: filled with theirs.
        last: ns: where ranges end that were open when the recording stopped.
    """
    reader = _RangeReader(names)
    result = TracedRanges(np.zeros(0, EVENT_ROW_DTYPE))
    strings = _strings(database)
    _name_domains(database, reader, strings, result)
    wanted = ",".join(map(str, (*_MARKS, *_RANGES)))
    marks: list[tuple[int, ...]] = []
    parts: list[Rows] = []
    for row in (
        database.rows(TABLE, _NVTX_COLUMNS, f"WHERE eventType IN ({wanted})")
        if database.has(TABLE, "start", "eventType")
        else ()
    ):
        kind_of, start, end, tid, domain = (
            value if type(value) is int else None for value in row[:5]
        )
        if start is None:
            continue
        tid = tid or 0
        text = _text(row[5], row[6], strings)
        name, shape, kind = reader.range(tid, domain or 0, text)
        until = start if kind_of in _MARKS else last if end is None else end
        nbytes = (
            _number(row[9], row[10])
            if domain and reader.domains.get((tid // THREADS, domain)) == _OWN_DOMAIN
            else -1
        )
        if domain and text.startswith("nccl"):
            result.nccl.append(
                _Payload(
                    len(parts) * BATCH + len(marks), text, _said(_text(row[7], row[8], strings))
                )
            )
        marks.append((start, until, nbytes, tid, name, shape, kind))
        if len(marks) == BATCH:
            parts.append(_rows(marks))
            marks.clear()
    result.rows, result.shapes = np.concatenate([*parts, _rows(marks)]), reader.known
    return result


def _rows(marks: list[tuple[int, ...]]) -> Rows:
    columns = np.fromiter(chain.from_iterable(marks), np.int64, 7 * len(marks)).reshape(-1, 7)
    rows = np.zeros(len(marks), EVENT_ROW_DTYPE)
    rows["correlation"] = rows["device"] = -1
    rows["start"] = np.clip(columns[:, 0], -TIMES, TIMES)
    rows["end"] = np.clip(np.maximum(columns[:, 1], columns[:, 0]), -TIMES, TIMES)
    for place, name in ((2, "nbytes"), (3, "place"), (4, "name"), (5, "shape"), (6, "kind")):
        rows[name] = columns[:, place]
    rows["process"] = process_of(columns[:, 3])
    return rows


def _strings(database: Database) -> dict[int, str]:
    """Return texts that ranges refer to."""
    columns = database.read(
        TABLE, {name: RowField((name,), -1) for name in ("textId", "jsonTextId")}
    )
    return database.strings(np.unique(np.concatenate(list(columns.values()))).tolist())


def _name_domains(
    database: Database, reader: _RangeReader, strings: dict[int, str], result: TracedRanges
) -> None:
    where = f"WHERE eventType IN ({_DOMAIN}, {', '.join(map(str, _THREAD_NAME))})"
    for kind, _, _, tid, domain, text, text_id, *_ in (
        database.rows(TABLE, _NVTX_COLUMNS, where) if database.has(TABLE, "eventType") else ()
    ):
        name = _text(text, text_id, strings)
        if not isinstance(tid, int) or not name:
            continue
        if kind == _DOMAIN and isinstance(domain, int):
            reader.domains[tid // THREADS, domain] = name
        elif kind in _THREAD_NAME:
            result.threads[tid] = name


def _text(text: object, number: object, strings: dict[int, str]) -> str:
    if isinstance(text, str) and text:
        return text
    return strings.get(number, "") if isinstance(number, int) else ""


def _number(*values: object) -> int:
    return next((value for value in values if isinstance(value, int) and value >= 0), -1)


def _guess(domain: int, text: str) -> str:
    """Return the domain of a range whose domain was named before the recording began."""
    return "NCCL" if text.startswith("nccl") else f"domain {domain}"


def _is_operator(name: str, sequenced: bool) -> bool:
    """Tell whether PyTorch's C++ code named it.

    emit_nvtx does not say which range was an operator and which a user's record_function.
    """
    if name.startswith("autograd::"):
        return True
    return (
        not name.startswith(_SCOPED)
        and " " not in name
        and "#" not in name
        and ("::" in name or sequenced)
    )


def _said(text: str) -> dict[str, object]:
    """Return a payload as Nsight Systems writes it with ``--include-json=true``."""
    if not text or len(text) > _LONGEST_PAYLOAD:
        return {}
    try:
        members = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return _flat(members, {}, 4)


def _flat(value: object, into: dict[str, object], depth: int) -> dict[str, object]:
    items = value.items() if isinstance(value, dict) else ()
    for name, member in items:
        if isinstance(member, dict) and depth:
            _flat(member, into, depth - 1)
        else:
            into[str(name)] = member
    return into


def _shape(sizes: str) -> Shape | None:
    try:
        lists = json.loads(sizes)
    except (ValueError, RecursionError):
        return None
    if not isinstance(lists, list) or len(lists) > _MOST_INPUTS:
        return None
    inputs = tuple(
        tuple(sizes)
        if isinstance(sizes, list) and all(isinstance(size, int) for size in sizes)
        else ()
        for sizes in lists
    )
    return Shape(inputs, ("",) * len(inputs))


_OPERATIONS = {
    "ncclAllReduce": "allreduce",
    "ncclAllGather": "allgather",
    "ncclReduceScatter": "reduce_scatter",
    "ncclBroadcast": "broadcast",
    "ncclBcast": "broadcast",
    "ncclReduce": "reduce",
    "ncclAlltoAll": "all_to_all",
    "ncclAllToAll": "all_to_all",
    "ncclGather": "gather",
    "ncclScatter": "scatter",
    "ncclSend": "send",
    "ncclRecv": "recv",
}


@dataclass(eq=False)
class NcclPayload:
    """What NCCL said in one file.

    Attributes:
        args: each once.
        index: int64 [rows]: of ``args`` for each row; -1: nothing is known.
        rank, size: globalPid -> of the largest communicator that it began.
    """

    args: list[CollectiveArgs]
    index: IntArray
    ranks: dict[int, tuple[int, int]] = field(default_factory=dict)


def nccl_of_kernels(rows: Rows, names: Sequence[str], payloads: Sequence[_Payload]) -> NcclPayload:
    """Collect what is known of each kernel of NCCL's, beyond its name.

    NCCL names its calls in an NVTX domain of its own, with the bytes and the communicator in a
    payload that Nsight Systems exports with ``--include-json=true`` (nccl, src/collectives.cc:
    "Message size [bytes]"; src/init_nvtx.h: "NCCL communicator ID"). A group of calls is launched
    by the ncclGroupEnd that closes it. PyTorch, under emit_nvtx, calls its own ``nccl:all_to_all``.

    Args:
        rows: of a whole file.
        names: of all rows.
        payloads: with ``row`` an index into these rows.
    """
    result = NcclPayload([], np.full(len(rows), -1, np.int64))
    sizes = _communicators(rows, payloads, result)
    kernel = np.array([name.lower().startswith(_KERNEL_NAMES) for name in names] or [False])
    kernels = (
        np.flatnonzero((rows["kind"] == Kind.KERNEL) & kernel[rows["name"]])
        if len(rows)
        else np.zeros(0, np.int64)
    )
    if not len(kernels):
        return result
    launches = _launches(rows, kernels)
    torch = {number: name for number, name in enumerate(names) if name.startswith("nccl:")}
    annotated = np.flatnonzero(
        np.isin(rows["name"], list(torch)) & np.isin(rows["kind"], (Kind.ANNOTATION, Kind.OPERATOR))
    )
    known: dict[CollectiveArgs, int] = {}
    for place in np.unique(rows["place"][launches[launches >= 0]]).tolist():
        mine = np.flatnonzero((launches >= 0) & (rows["place"][launches] == place))
        mine = mine[np.argsort(rows["start"][launches[mine]], kind="stable")]
        times = rows["start"][launches[mine]]
        operations = _around(rows, annotated[rows["place"][annotated] == place], times)
        calls = _calls(
            rows, [payload for payload in payloads if rows["place"][payload.row] == place], times
        )
        for kernel_number, operation, parts in zip(
            kernels[mine].tolist(), operations.tolist(), calls
        ):
            name_of_range = (
                torch[int(rows["name"][operation])].removeprefix("nccl:")
                if operation >= 0
                else None
            )
            args = _args(name_of_range, parts, sizes)
            if args is not None:
                result.index[kernel_number] = known.setdefault(args, len(known))
    result.args = list(known)
    return result


def _communicators(rows: Rows, payloads: Sequence[_Payload], result: NcclPayload) -> dict[str, int]:
    """Return the size of each communicator by name; fill in the ranks of processes."""
    sizes: dict[str, int] = {}
    for payload in payloads:
        size, rank = payload.said.get(_NUMBER_OF_RANKS), payload.said.get(_RANK)
        if (
            payload.name not in _BEGUN
            or not isinstance(size, int)
            or not isinstance(rank, int)
            or not 0 <= rank < size
        ):
            continue
        sizes[str(payload.said.get(_COMMUNICATOR))] = size
        process = int(rows["process"][payload.row])
        if size > result.ranks.get(process, (0, 0))[1]:
            result.ranks[process] = (rank, size)
    return sizes


def _launches(rows: Rows, kernels: IntArray) -> IntArray:
    """Return the call that launched each kernel, -1 where it is not there."""
    calls = np.flatnonzero(
        (rows["kind"] == Kind.RUNTIME) & np.isin(rows["correlation"], rows["correlation"][kernels])
    )
    calls = calls[rows["correlation"][calls] > 0]
    keys = _keys(rows, np.concatenate([calls, kernels]))
    own, wanted = keys[: len(calls)], keys[len(calls) :]
    order = np.argsort(own, kind="stable")
    place = np.minimum(np.searchsorted(own[order], wanted), max(len(calls) - 1, 0))
    if not len(calls):
        return np.full(len(kernels), -1, np.int64)
    return np.where(own[order][place] == wanted, calls[order][place], -1)


def _keys(rows: Rows, chosen: IntArray) -> IntArray:
    """Return one number for each pair of process and correlation."""
    pairs = np.stack([rows["process"][chosen], rows["correlation"][chosen]], 1)
    return np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1)


def _around(rows: Rows, chosen: IntArray, times: IntArray) -> IntArray:
    """Return which of the chosen ranges of one thread holds each time; -1: none."""
    if not len(chosen):
        return np.full(len(times), -1, np.int64)
    chosen = chosen[np.argsort(rows["start"][chosen], kind="stable")]
    place = np.searchsorted(rows["start"][chosen], times, "right") - 1
    inside = (place >= 0) & (rows["end"][chosen[np.maximum(place, 0)]] >= times)
    return np.where(inside, chosen[np.maximum(place, 0)], -1)


def _calls(rows: Rows, payloads: Sequence[_Payload], times: IntArray) -> list[tuple[_Payload, ...]]:
    """Return the calls of NCCL that each launch on one thread carried out, in order."""
    if not payloads:
        return [()] * len(times)
    by_row = {payload.row: payload for payload in payloads}
    every = np.array(sorted(by_row, key=lambda row: int(rows["start"][row])), np.int64)
    start, launches = rows["start"][every], list[tuple[_Payload, ...]]()
    done, before = -(1 << 62), -1
    for row in _around(rows, every, times).tolist():
        if row < 0:
            launches.append(())
            continue
        if row == before:
            launches.append(launches[-1])
            continue
        first, last = np.searchsorted(start, (done, int(rows["end"][row])), "left").tolist()
        if by_row[row].name in _OPERATIONS:
            launches.append((by_row[row],))
        else:
            launches.append(
                tuple(
                    by_row[value]
                    for value in every[first:last].tolist()
                    if by_row[value].name in _OPERATIONS
                )
            )
        done, before = int(rows["end"][row]), row
    return launches


def _args(
    operation_name: str | None, parts: tuple[_Payload, ...], sizes: dict[str, int]
) -> CollectiveArgs | None:
    operations = {_OPERATIONS[payload.name] for payload in parts}
    operation = operation_name or (
        operations.pop() if len(operations) == 1 else "send_recv" if operations else None
    )
    if operation is None:
        return None
    groups = {
        str(payload.said[_COMMUNICATOR]) for payload in parts if _COMMUNICATOR in payload.said
    }
    group = groups.pop() if len(groups) == 1 else None
    sent, received = _bytes(parts, "ncclRecv"), _bytes(parts, "ncclSend")
    counted = sent is not None or received is not None
    return CollectiveArgs(
        operation,
        group,
        size=sizes.get(group or ""),
        elements_in=sent,
        elements_out=received,
        dtype=_ONE_BYTE if counted else None,
    )


def _bytes(parts: tuple[_Payload, ...], without: str) -> int | None:
    """Return bytes on one side of what was called.

    Of all_gather and reduce_scatter the payload has what one rank gives or takes.
    """
    values = [payload.said.get(_MESSAGE_BYTES) for payload in parts if payload.name != without]
    numbers = [value for value in values if isinstance(value, int)]
    return sum(numbers) if numbers and len(numbers) == len(values) else None
