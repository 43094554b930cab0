"""The c10d operators and the size of their messages."""

from dataclasses import dataclass
from typing import Any

import torch

#: c10d operator -> what it is. Others, of a newer torch, go by their own name.
_OPERATION_NAMES = {
    "allreduce_": "all_reduce",
    "allreduce_coalesced_": "all_reduce",
    "allgather_": "all_gather",
    "_allgather_base_": "all_gather",
    "allgather_coalesced_": "all_gather",
    "allgather_into_tensor_coalesced_": "all_gather",
    "reduce_scatter_": "reduce_scatter",
    "_reduce_scatter_base_": "reduce_scatter",
    "reduce_scatter_tensor_coalesced_": "reduce_scatter",
    "alltoall_": "all_to_all",
    "alltoall_base_": "all_to_all",
    "broadcast_": "broadcast",
    "reduce_": "reduce",
    "gather_": "gather",
    "scatter_": "scatter",
    "barrier": "barrier",
    "monitored_barrier_": "monitored_barrier",
    "send": "send",
    "recv_": "recv",
    "recv_any_source_": "recv",
}
_NO_WORK = "check_for_nan"  # moves nothing, has no group
# which of (output, input) every rank has: its share of the message
_ON_ROOT_ONLY = {"gather_": 1, "scatter_": 0}
_SENDS = {"send": True, "recv_": False, "recv_any_source_": False}  # messages between two ranks


@dataclass(frozen=True, slots=True)
class CollectiveOperation:
    """How to read the arguments of one operator.

    Attributes:
        op: the operator.
        name: what it is.
        group: where in the arguments the process group is; before it are the tensors, outputs
            first.
        share: which of the tensors is one rank's share where the rest is on the root only; None
            otherwise.
        tag: where the tag of a message between two ranks is; -1: it is none.
        peer: position of the other rank; -1: none, or any source.
        sends: this rank is the one that sends.
        empty: its tensor carries nothing.
        reducer: DistributedDataParallel's reducer uses it.
        plain: one list of tensors, which is the message.
        waits: where in the arguments is said whether the caller does without waiting, which is left
            out where it is the default, True; -1: nowhere.
    """

    op: Any
    name: str
    group: int
    share: int | None
    tag: int
    peer: int
    sends: bool
    empty: bool
    reducer: bool
    plain: bool
    waits: int

    def first(self, args: tuple[Any, ...]) -> torch.Tensor | None:
        """Return any one of the tensors."""
        for side in args[: self.group]:
            while isinstance(side, list | tuple):
                if not side:
                    break
                side = side[0]
            else:
                if isinstance(side, torch.Tensor):
                    return side
        return None

    def nbytes(self, args: tuple[Any, ...], ranks: int) -> int:
        """Return S, the full message: the larger of input and output.

        For gather and scatter it is n shards, although only the root holds them all.

        Args:
            args: of the call.
            ranks: n of the group.
        """
        if self.empty:
            return 0
        if self.share is not None:
            return ranks * _total(args[self.share])
        if self.plain:
            return _total(args[0])
        return max(_total(args[0]), _total(args[1]))


def _total(value: Any) -> int:
    """Return the bytes of a tensor, or of all tensors in a list or a list of lists."""
    if isinstance(value, list | tuple):
        return sum(map(_total, value)) if len(value) != 1 else _total(value[0])
    if value.layout is torch.strided:
        return int(value.nbytes)
    if value.is_sparse:
        return int(value._values().nbytes + value._indices().nbytes)
    return 0


def collective_operations() -> list[CollectiveOperation]:
    """Return all operators of c10d that work on a process group.

    Raises:
        RuntimeError: this torch has none.
    """
    operations = []
    for qualified in torch._C._dispatch_get_all_op_names():
        library, _, name = qualified.partition("::")
        if library != "c10d" or name == _NO_WORK or "." in name:
            continue
        op = getattr(torch.ops.c10d, name).default
        names = [argument.name for argument in op._schema.arguments]
        if "process_group" not in names:
            continue
        peer = next(
            (
                names.index(peer_name)
                for peer_name in ("dst", "src")
                if peer_name in names and name in _SENDS
            ),
            -1,
        )
        operations.append(
            CollectiveOperation(
                op=op,
                name=_OPERATION_NAMES.get(name, name.strip("_")),
                group=names.index("process_group"),
                share=_ON_ROOT_ONLY.get(name),
                tag=names.index("tag") if name in _SENDS else -1,
                peer=peer,
                sends=_SENDS.get(name, False),
                empty="barrier" in name,
                reducer=name == "allreduce_",
                plain=names.index("process_group") == 1 and "barrier" not in name,
                waits=names.index("async_op") if "async_op" in names else -1,
            )
        )
    if not operations:
        raise RuntimeError("this torch has no c10d operators")
    return operations
