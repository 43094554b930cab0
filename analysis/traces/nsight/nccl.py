"""What NCCL's and PyTorch's ranges say of the kernels that were launched inside them.

NCCL names its calls in an NVTX domain of its own, with the bytes and the communicator in a payload that Nsight Systems exports with
``--include-json=true`` (nccl, src/collectives.cc: "Message size [bytes]"; src/init_nvtx.h: "NCCL communicator ID"). A group of calls is
launched by the ncclGroupEnd that closes it. PyTorch, under emit_nvtx, calls its own ``nccl:all_to_all``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from feedline.analysis.intervals import IntArray
from feedline.analysis.traces.columns import CollectiveArgs, Kind
from feedline.analysis.traces.nsight.nvtx import Payload
from feedline.analysis.traces.nsight.rows import Rows

_BYTES, _COMMUNICATOR, _RANKS, _RANK = "Message size [bytes]", "NCCL communicator ID", "No. of ranks", "Rank"
_BEGUN = ("ncclCommInitRank", "ncclCommInitRankConfig", "ncclCommInitRankScalable")
_KERNEL_NAMES = ("nccl", "rccl")
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
_ONE_BYTE = "Byte"  # the payload counts bytes, whatever they mean


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


def told(rows: Rows, names: Sequence[str], payloads: Sequence[Payload]) -> NcclPayload:
    """What is known of each kernel of NCCL's, beyond its name.

    Args:
        rows: of a whole file.
        payloads: with ``row`` an index into these rows.
    """
    found = NcclPayload([], np.full(len(rows), -1, np.int64))
    sizes = _communicators(rows, payloads, found)
    kernel = np.array([name.lower().startswith(_KERNEL_NAMES) for name in names] or [False])
    kernels = np.flatnonzero((rows["kind"] == Kind.KERNEL) & kernel[rows["name"]]) if len(rows) else np.zeros(0, np.int64)
    if not len(kernels):
        return found
    launches = _launches(rows, kernels)
    torch = {number: name for number, name in enumerate(names) if name.startswith("nccl:")}
    annotated = np.flatnonzero(np.isin(rows["name"], list(torch)) & np.isin(rows["kind"], (Kind.ANNOTATION, Kind.OPERATOR)))
    known: dict[CollectiveArgs, int] = {}
    for place in np.unique(rows["place"][launches[launches >= 0]]).tolist():
        mine = np.flatnonzero((launches >= 0) & (rows["place"][launches] == place))
        mine = mine[np.argsort(rows["start"][launches[mine]], kind="stable")]
        times = rows["start"][launches[mine]]
        operations = _around(rows, annotated[rows["place"][annotated] == place], times)
        calls = _calls(rows, [one for one in payloads if rows["place"][one.row] == place], times)
        for kernel_number, operation, parts in zip(kernels[mine].tolist(), operations.tolist(), calls):
            said = torch[int(rows["name"][operation])].removeprefix("nccl:") if operation >= 0 else None
            args = _args(said, parts, sizes)
            if args is not None:
                found.index[kernel_number] = known.setdefault(args, len(known))
    found.args = list(known)
    return found


def _communicators(rows: Rows, payloads: Sequence[Payload], found: NcclPayload) -> dict[str, int]:
    """Size of each communicator by name; fills in the ranks of processes."""
    sizes: dict[str, int] = {}
    for one in payloads:
        size, rank = one.said.get(_RANKS), one.said.get(_RANK)
        if one.name not in _BEGUN or not isinstance(size, int) or not isinstance(rank, int) or not 0 <= rank < size:
            continue
        sizes[str(one.said.get(_COMMUNICATOR))] = size
        process = int(rows["process"][one.row])
        if size > found.ranks.get(process, (0, 0))[1]:
            found.ranks[process] = (rank, size)
    return sizes


def _launches(rows: Rows, kernels: IntArray) -> IntArray:
    """The call that launched each kernel, -1 where it is not there."""
    calls = np.flatnonzero((rows["kind"] == Kind.RUNTIME) & np.isin(rows["correlation"], rows["correlation"][kernels]))
    calls = calls[rows["correlation"][calls] > 0]
    keys = _keys(rows, np.concatenate([calls, kernels]))
    own, wanted = keys[: len(calls)], keys[len(calls) :]
    order = np.argsort(own, kind="stable")
    place = np.minimum(np.searchsorted(own[order], wanted), max(len(calls) - 1, 0))
    if not len(calls):
        return np.full(len(kernels), -1, np.int64)
    return np.where(own[order][place] == wanted, calls[order][place], -1)


def _keys(rows: Rows, chosen: IntArray) -> IntArray:
    """One number for each pair of process and correlation."""
    pairs = np.stack([rows["process"][chosen], rows["correlation"][chosen]], 1)
    return np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1)


def _around(rows: Rows, chosen: IntArray, times: IntArray) -> IntArray:
    """Of the chosen ranges of one thread, the one that holds each time; -1: none."""
    if not len(chosen):
        return np.full(len(times), -1, np.int64)
    chosen = chosen[np.argsort(rows["start"][chosen], kind="stable")]
    place = np.searchsorted(rows["start"][chosen], times, "right") - 1
    inside = (place >= 0) & (rows["end"][chosen[np.maximum(place, 0)]] >= times)
    return np.where(inside, chosen[np.maximum(place, 0)], -1)


def _calls(rows: Rows, payloads: Sequence[Payload], times: IntArray) -> list[tuple[Payload, ...]]:
    """For each launch on one thread, in order: the calls of NCCL that it carried out."""
    if not payloads:
        return [()] * len(times)
    by_row = {one.row: one for one in payloads}
    every = np.array(sorted(by_row, key=lambda row: int(rows["start"][row])), np.int64)
    start, found = rows["start"][every], list[tuple[Payload, ...]]()
    done, before = -(1 << 62), -1
    for row in _around(rows, every, times).tolist():
        if row < 0:
            found.append(())
            continue
        if row == before:
            found.append(found[-1])
            continue
        first, last = np.searchsorted(start, (done, int(rows["end"][row])), "left").tolist()
        if by_row[row].name in _OPERATIONS:
            found.append((by_row[row],))
        else:
            found.append(tuple(by_row[one] for one in every[first:last].tolist() if by_row[one].name in _OPERATIONS))
        done, before = int(rows["end"][row]), row
    return found


def _args(said: str | None, parts: tuple[Payload, ...], sizes: dict[str, int]) -> CollectiveArgs | None:
    operations = {_OPERATIONS[one.name] for one in parts}
    operation = said or (operations.pop() if len(operations) == 1 else "send_recv" if operations else None)
    if operation is None:
        return None
    groups = {str(one.said[_COMMUNICATOR]) for one in parts if _COMMUNICATOR in one.said}
    group = groups.pop() if len(groups) == 1 else None
    sent, received = _bytes(parts, "ncclRecv"), _bytes(parts, "ncclSend")
    counted = sent is not None or received is not None
    return CollectiveArgs(
        operation, group, size=sizes.get(group or ""), elements_in=sent, elements_out=received, dtype=_ONE_BYTE if counted else None
    )


def _bytes(parts: tuple[Payload, ...], without: str) -> int | None:
    """Bytes on one side of what was called. Of all_gather and reduce_scatter the payload has what one rank gives or takes."""
    values = [one.said.get(_BYTES) for one in parts if one.name != without]
    numbers = [value for value in values if isinstance(value, int)]
    return sum(numbers) if numbers and len(numbers) == len(values) else None
