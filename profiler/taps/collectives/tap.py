"""A kernel for each c10d operator at dispatch key BackendSelect.

Every collective passes there, also from C++. Patched functions of torch.distributed see no bucket
of DistributedDataParallel, whose reducer calls C++; kernels at autograd's keys miss functional,
compiled and inference-mode calls. Other operators than c10d's do not pass here, so they cost
nothing.

The reducer calls while it holds its own lock, and the kernel takes the interpreter's: the same
order as for a communication hook in Python.

The kernels are registered once per process and never removed. A thread entering one waits for the
interpreter's lock with a bare pointer to it (torch's PythonKernelHolder); removing it meanwhile
would leave that thread in freed memory. After a recording they pass everything through.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from feedline.profiler import clock, masks
from feedline.profiler.events import UNMEASURED, Flag
from feedline.profiler.fail_open import reraise_of_handler
from feedline.profiler.record.recorder import recorder
from feedline.profiler.store.segment import Segment
from feedline.profiler.taps.collectives.ends import COLLECTIVE, CudaEnds, Ends, StartedCollective
from feedline.profiler.taps.collectives.groups import (
    COLLECTIVES_HOOK,
    Channel,
    RecordedGroup,
    RecordedGroups,
)
from feedline.profiler.taps.patch import Patches
from feedline.profiler.torch_internals import NoFunctionModes

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
_DISPATCH_KEY = "BackendSelect"
# the module in whose frame the autograd engine runs on a CPU; on a GPU's thread there is no frame
_ENGINE = "torch.autograd.graph"
_MOST_ERRORS = 20  # of feedline itself, after which the tap detaches
_WAITED_FOR = "gloo"  # gives a work that is waited for in Python, where others may give none
# the row, the group, bytes, events of a GPU, the caller waits for it at once
_Begun = tuple[StartedCollective, Any, int, Any, bool]


@dataclass(frozen=True, slots=True)
class _CollectiveOperation:
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


def _collective_operations() -> list[_CollectiveOperation]:
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
            _CollectiveOperation(
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


@dataclass(frozen=True, slots=True)
class _Kind:
    """Properties shared by all calls of one operation on one group and dtype."""

    of: Callable[[], Any]  # a weak reference to the process group
    segment: Segment
    group: RecordedGroup
    channel: Channel  # unless it is between two ranks, which the arguments name
    ids: int  # of the channel
    dtype: int
    source: int


# by address of the group, dtype and whether on a CPU
_Kinds = dict[tuple[int, torch.dtype | None, bool], _Kind]


class _CollectiveKernels:
    """The kernels of this process.

    Attributes:
        tap: who is told of collectives; None: they pass through.
    """

    def __init__(self) -> None:
        self.tap: CollectiveTap | None = None
        # torch.library.Library would take its kernels away at exit, where threads may still
        # communicate
        self._module: Any = None

    def register(self) -> None:
        """Register them, once.

        Raises:
            Exception: this torch is built differently, or another library has kernels there.
        """
        if self._module is not None:
            return
        key = torch._C._parse_dispatch_key(_DISPATCH_KEY)
        if key is None:
            raise RuntimeError(f"this torch has no dispatch key {_DISPATCH_KEY}")
        below, operations = torch._C._dispatch_keyset_full_after(key), _collective_operations()
        self._module = torch._C._dispatch_library("IMPL", "c10d", _DISPATCH_KEY, __file__, 0)
        for operation in operations:
            self._module.impl(
                operation.op.name(), _DISPATCH_KEY, self._kernel(operation, below), True
            )

    def _kernel(self, operation: _CollectiveOperation, below: Any) -> Any:
        """Make a kernel with the dispatcher's own keys.

        Those of a tensor take 7 us less, but miss what a mode adds to a thread's (FakeTensorMode).
        OpOverload.redispatch does no more than its handle's, in a frame of its own.
        """
        redispatch = getattr(
            getattr(operation.op, "_handle", None), "redispatch_boxed", operation.op.redispatch
        )
        kinds: _Kinds = {}

        def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
            segment, tap = recorder.main, self.tap
            begun = None
            if segment is not None and tap is not None:
                with NoFunctionModes():
                    begun = tap.begin(segment, operation, kinds, args)
            if begun is None or tap is None:
                return redispatch(keyset & below, *args, **kwargs)
            ranges = recorder.ranges
            if ranges is not None:
                ranges.push(operation.name, begun[2])
            try:
                out = redispatch(keyset & below, *args, **kwargs)
            except BaseException:
                begun[0].unknown()
                raise
            finally:
                if ranges is not None:
                    ranges.pop()
            tap.complete(begun, operation, out)
            return out

        return kernel


_collective_kernels = _CollectiveKernels()


class CollectiveTap:
    """Records every collective. Never raises what the collective itself would not raise.

    Args:
        report: called with the reason when it gives up.

    Attributes:
        ends: who stamps the ends.
    """

    def __init__(self, report: Any) -> None:
        self._report = report
        self._groups = RecordedGroups()
        self.ends = Ends(self._groups)
        self._cuda = CudaEnds()
        self._patches = Patches()
        self._errors = 0
        self._unbox_group, self._unbox_work = dist.ProcessGroup.unbox, dist.Work.unbox

    def attach(self) -> None:
        """Receive collectives; can be repeated after ``detach``.

        Raises:
            Exception: this torch is built differently, or other code has kernels there.
        """
        _collective_kernels.register()
        self.ends.attach(self._patches)
        _collective_kernels.tap = self

    def detach(self) -> None:
        """Receive no more collectives. Pending callbacks still arrive."""
        if _collective_kernels.tap is self:
            _collective_kernels.tap = None
        self._patches.undo()

    def stop(self) -> int:
        """End the recording.

        Returns how many ends on a GPU are unknown; 0 if more than that failed, which has been
        reported.
        """
        self.detach()
        unknown = self._cuda.stop()
        return 0 if self._errors else unknown

    def begin(
        self,
        segment: Segment,
        operation: _CollectiveOperation,
        kinds: _Kinds,
        args: tuple[Any, ...],
    ) -> _Begun | None:
        """Record the start; None if that failed."""
        try:
            pg = self._unbox_group(args[operation.group])
            # most calls' case
            alone = args[0][0] if operation.plain and len(args[0]) == 1 else None
            tensor = alone if alone is not None else operation.first(args)
            key = (id(pg), None, True) if tensor is None else (id(pg), tensor.dtype, tensor.is_cpu)
            kind = kinds.get(key)
            if kind is None or kind.segment is not segment or kind.of() is not pg:
                kind = kinds[key] = self._kind(segment, operation, pg, tensor)
            group, channel, ids = kind.group, kind.channel, kind.ids
            if operation.tag >= 0:
                channel = group.pair(
                    args[operation.peer] if operation.peer >= 0 else None,
                    operation.sends,
                    args[operation.tag],
                )
                ids = channel.id_in(segment)
            nbytes = (
                operation.nbytes(args, group.size)
                if alone is None or alone.layout is not torch.strided
                else alone.nbytes
            )
            waited = 0 < operation.waits < len(args) and args[operation.waits] is False
            flags = (
                Flag.BUCKET
                if operation.reducer and not waited and tensor is not None and _from_reducer(tensor)
                else 0
            )
            if operation.reducer and tensor is not None and recorder.convergence is not None:
                recorder.convergence.reduced(tensor, group.size, bool(flags))
            on_gpu = tensor if tensor is not None and tensor.is_cuda else None
            events = self._cuda.begin(on_gpu.device) if on_gpu is not None else None
            start = clock.wall_ns()
            number = next(channel.numbers)
            place = segment.add(
                COLLECTIVE,
                start,
                UNMEASURED,
                ids,
                kind.dtype,
                nbytes,
                number,
                0,
                kind.source,
                flags,
            )
            row = StartedCollective(segment, place, start, group, channel)
            if on_gpu is not None and events is None:
                row.unknown()
            return row, pg, nbytes, events, waited
        except Exception as error:
            reraise_of_handler()
            self._failed(error)
            return None

    def complete(self, begun: _Begun, operation: _CollectiveOperation, out: Any) -> None:
        row, pg, _, events, waited = begun
        try:
            if row.ended:
                return
            work = out[-1] if isinstance(out, tuple) and out else out
            if isinstance(work, tuple):
                work = None
            if events is not None:
                # no truth test: boxed, it has none
                work = None if work is None else self._unbox_work(work)
                if work is None and operation.tag >= 0:  # launched later, with others
                    self._cuda.lose(row)
                else:
                    self._cuda.watch(row, work, events)
            elif work is None:  # it returned when it was complete
                row.end(clock.wall_ns())
            elif waited and row.channel.backend == _WAITED_FOR:
                self.ends.expect(row)
            elif (work := self._unbox_work(work)) is not None:
                self.ends.watch(row, pg, work, operation.name)
        except Exception as error:
            reraise_of_handler()
            self._failed(error)

    def _kind(
        self,
        segment: Segment,
        operation: _CollectiveOperation,
        pg: Any,
        tensor: torch.Tensor | None,
    ) -> _Kind:
        group = self._groups.of(pg, tensor)
        ids = group.whole.id_in(segment) if operation.tag < 0 else 0
        dtype = 0 if tensor is None else segment.name_id(str(tensor.dtype).removeprefix("torch."))
        return _Kind(
            group.of, segment, group, group.whole, ids, dtype, segment.name_id(operation.name)
        )

    def _failed(self, error: Exception) -> None:
        self._errors += 1
        if self._errors == 1:
            self._report(
                COLLECTIVES_HOOK, False, f"some collectives are missing, {masks.error(error)}"
            )
        if self._errors > _MOST_ERRORS:
            self.detach()


def _from_reducer(tensor: torch.Tensor) -> bool:
    """Return whether C++ code run by the autograd engine called the kernel, three frames up.

    Its int32 is the map of parameters in use.
    """
    try:
        caller = sys._getframe(3).f_globals.get("__name__")
    except ValueError:  # a thread of the engine's own
        return tensor.dtype is not torch.int32
    return caller == _ENGINE and tensor.dtype is not torch.int32
