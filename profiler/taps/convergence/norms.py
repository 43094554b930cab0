"""Squared norms of the gradient of a part of an update and of the whole, for the gradient noise scale (profiler/noise_scale.py).

where the parts come from            the part's own gradient                      the whole's
DistributedDataParallel              its buckets before they are summed           p.grad after backward
.. with a hook of the program        the buckets that the hook is given           p.grad after backward
FSDP2 (fully_shard)                  what its reduce-scatter is given             this rank's shard of p.grad after backward
all_reduce by the program            p.grad after backward                        p.grad before clipping and the update
accumulation in one process          p.grad after the first backward              p.grad after the last one

Each rank records its own; the mean over ranks is computed when the run is read, so nothing is sent. Updates are measured as often as
costs at most SHARE of the training's first minute, because a training of seconds has few updates, and half of that later on.

Numbers that a GPU may still be computing are recorded once they are available. The program never waits: they are copied to pinned memory
after the kernels that compute them, and read there.
"""

import functools
import math
import struct
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import torch

from feedline.profiler import clock, masks, message
from feedline.profiler.events import UNMEASURED, Flag, Stage
from feedline.profiler.fail_open import reraise_of_handler
from feedline.profiler.message import Message
from feedline.profiler.ranks import place
from feedline.profiler.record.recorder import recorder
from feedline.profiler.taps.patch import Patches
from feedline.profiler.torch_internals import below_user_modes

_MAX_WAITING = 64  # numbers that wait for a GPU; the oldest is given up then
_DOUBLE, _LONG, _FLOATS = struct.Struct("<d"), struct.Struct("<q"), struct.Struct("<ff")


class _Progress(Protocol):
    """Progress of the training (ConvergenceWatch)."""

    updates: int

    @property
    def samples(self) -> int: ...

    @property
    def fresh(self) -> int: ...


class DeviceNumbers:
    """Writes VALUE and GRADIENT records. Args: counts: read when a number is handed over."""

    def __init__(self, counts: _Progress) -> None:
        self._counts = counts
        self._waiting: deque[tuple[Any, Callable[[], None]]] = deque()

    def number(
        self,
        name: str,
        value: float,
        at: int | None = None,
        samples: int | None = None,
        updates: int | None = None,
    ) -> None:
        """Record one number of the training, as of now or of an earlier moment."""
        segment = recorder.always_on_segment()
        if segment is None:
            return
        samples = self._counts.samples if samples is None else samples
        updates = self._counts.updates if updates is None else updates
        segment.add(
            Stage.VALUE,
            at or clock.wall_ns(),
            0,
            UNMEASURED,
            UNMEASURED,
            samples,
            _bits(value),
            updates,
            segment.name_id(name),
        )

    def value(self, name: str, value: torch.Tensor) -> None:
        """Return the value of a tensor of one element."""
        at, samples, updates = clock.wall_ns(), self._counts.samples, self._counts.updates
        self._once(value, lambda there: self.number(name, there.item(), at, samples, updates))

    def gradient(
        self,
        how: str,
        small: torch.Tensor,
        big: torch.Tensor,
        samples: int,
        parts: int,
        ranks: int,
        flags: int,
        updates: int,
    ) -> None:
        """Record the two squared norms of an update; see ``Stage.GRADIENT``."""
        at, both = clock.wall_ns(), torch.stack([small.detach(), big.detach()])

        def write(there: torch.Tensor) -> None:
            segment = recorder.main
            if segment is not None:
                (number,) = _LONG.unpack(
                    _FLOATS.pack(*(_in_float(value) for value in there.tolist()))
                )
                source = segment.name_id(how)
                segment.add(
                    Stage.GRADIENT, at, 0, parts, ranks, samples, number, updates, source, flags
                )

        self._once(both, write)

    def read(self) -> None:
        """Record the numbers that are ready."""
        while self._waiting and self._waiting[0][0].query():
            self._waiting.popleft()[1]()
        while len(self._waiting) > _MAX_WAITING:
            self._waiting.popleft()

    def stop(self) -> None:
        """Record the numbers that are ready now; the rest is lost."""
        self.read()
        self._waiting.clear()

    def _once(self, tensor: torch.Tensor, write: Callable[[torch.Tensor], None]) -> None:
        if not tensor.is_cuda:
            write(tensor)
            return
        there = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        there.copy_(tensor, non_blocking=True)
        passed = torch.cuda.Event()
        passed.record(torch.cuda.current_stream(tensor.device))
        self._waiting.append((passed, lambda: write(there)))


def _bits(value: float) -> int:
    """Return a float64 as the int64 of the same bits."""
    (number,) = _LONG.unpack(_DOUBLE.pack(value))
    return int(number)


def _in_float(value: float) -> float:
    """Return the value as a float32; infinity if it is too large."""
    return value if abs(value) < 3e38 else value * float("inf")


_COST_SHARE, _FIRST_SECONDS = 0.015, 60.0  # of the training's time, and seconds until it is halved
_SELDOM = 64  # one update in N is measured whatever it costs
_COST_UPDATES = 8  # measured updates between two looks at what they cost
_NEEDS = Message(
    "the noise scale needs gradients of parts of an update: several ranks, or gradient "
    "accumulation over two micro-batches or more",
    message.ONE_GRADIENT,
)
_FSDP2 = "torch.distributed.fsdp._fully_shard._fsdp_param_group"
_Tensors = list[torch.Tensor]
# library, what is done once the program has imported it
WhenImported = Callable[[str, Callable[[], None]], None]


class GradientNormTap:
    """Measures updates, one after another.

    Attributes:
        why: why nothing has been measured; "" once something has.
        wanted: this update is measured.
        backwards: of this update so far; the caller counts.
        shared: ranks have exchanged gradients.
    """

    def __init__(self, counts: _Progress, later: DeviceNumbers) -> None:
        self._counts, self._later = counts, later
        self.why: str = _NEEDS
        self.scaled = self.shared = False  # scaled: a GradScaler is in use
        self._ranks = place().world_size
        self._optimizer: Any = lambda: None  # a weak reference
        self.wanted = self._lost = False
        self._created = self._began = time.perf_counter()
        self._spent, self._every, self._look = 0.0, 1, _COST_UPDATES
        self._new_update()
        self._before = 0  # backwards of the last update

    def _new_update(self) -> None:
        self.backwards = 0
        self._small: _Tensors = []  # of the buckets of this backward
        self._elements = 0  # in these buckets
        # of p.grad: by the program's own all_reduce, or accumulation
        self._local: torch.Tensor | None = None
        self._samples = 0  # behind the part
        self._last_samples = 0  # when the whole was measured, in accumulation
        self._how, self._done, self._in_hook, self._summed, self._stale = "", False, 0, 0, False
        self._parts = 1

    def attach(self, patches: Patches, when_imported: WhenImported) -> None:
        """Wrap the program's hooks, FSDP2's reduction and clipping.

        What this torch does not have is left out. FSDP2 is not touched until the program imports
        it: with its dependencies, importing it takes a second.
        """

        def watched(clip: Any) -> Any:
            def clip_grad_norm_(*args: Any, **kwargs: Any) -> Any:
                self.guarded(self._before_clipping)
                return clip(*args, **kwargs)

            return clip_grad_norm_

        patches.enter(torch.nn.utils.clip_grad_norm_, watched)
        if torch.distributed.is_available():
            self._watch_hooks(patches)
            when_imported(_FSDP2, lambda: self._watch_fsdp(patches))

    def _watch_hooks(self, patches: Patches) -> None:
        from torch.nn.parallel import DistributedDataParallel

        original = DistributedDataParallel.register_comm_hook

        @functools.wraps(original)
        def register_comm_hook(model: Any, state: Any, hook: Any) -> Any:
            @functools.wraps(hook)
            def watched(state: Any, bucket: Any) -> Any:
                if recorder.convergence is not None:
                    self.guarded(lambda: self._part("hook", [bucket.buffer()], 1.0, self._ranks))
                self._in_hook += 1
                try:
                    return hook(state, bucket)
                finally:
                    self._in_hook -= 1

            result = original(model, state, watched)
            if getattr(model, "_comm_hooks", None):
                model._comm_hooks[-1] = hook, state  # what the model is pickled with
            return result

        patches.set(DistributedDataParallel, "register_comm_hook", register_comm_hook)

    def _watch_fsdp(self, patches: Patches) -> None:
        group = sys.modules[_FSDP2]
        original = getattr(group, "foreach_reduce", None)
        if original is None:
            return

        @functools.wraps(original)
        def foreach_reduce(
            fsdp_params: Any, unsharded_grads: Any, *args: Any, **kwargs: Any
        ) -> Any:
            if recorder.convergence is not None:
                # no name for them: FSDP2 frees them before it makes what it reduces into
                self.guarded(self._part, "fsdp2", _only_tensors(unsharded_grads), 1.0, self._ranks)
            self._in_hook += 1
            try:
                return original(fsdp_params, unsharded_grads, *args, **kwargs)
            finally:
                self._in_hook -= 1

        patches.set(group, "foreach_reduce", foreach_reduce)

    def reduced(self, tensor: torch.Tensor, ranks: int, bucket: bool) -> None:
        """Note that a collective sums a tensor.

        DistributedDataParallel has already divided its bucket by the number of ranks.
        """
        if self._in_hook:
            return
        if bucket:
            self._part("ddp", [tensor], float(ranks), ranks)
        elif self._local is not None and tensor.is_floating_point():
            self._summed += tensor.numel()

    def _part(self, how: str, tensors: _Tensors, scale: float, ranks: int) -> None:
        """Note that a part's gradient goes by, or some of it."""
        self._how, self.shared = how, True
        if self.wanted and not self._done and tensors:
            self._small.append(_squared_norm(tensors) * scale**2)
            self._elements += sum(map(torch.Tensor.numel, tensors))
            self._parts = ranks

    @below_user_modes
    def guarded(self, act: Callable[..., None], *args: Any) -> None:
        """Run a part of the measurement inside the program's own calls.

        An error ends the measurement, and its time is counted.
        """
        begun = time.perf_counter()
        try:
            act(*args)
        except Exception as error:  # a sparse gradient, ...: the rest continues
            reraise_of_handler()
            self.give_up(error)
        self._spent += time.perf_counter() - begun

    def skip(self) -> None:
        """Note that the update is not measured."""
        self._new_update()

    def give_up(self, error: Exception) -> None:
        """Stop measuring."""
        self.wanted, self._lost = False, True
        self.why = masks.error(error)

    def before_backward(self) -> None:
        if not self.backwards:
            smallest = min(self._parameters(), key=torch.Tensor.numel, default=None)
            # the program does not set gradients to zero: sums of several updates
            left = None if smallest is None else smallest.grad
            self._stale = (
                left is not None and not left.is_cuda and bool(_local(left).count_nonzero())
            )

    def after_backward(self) -> None:
        if self._done or self._stale:
            return
        if self._small:
            if self._how == "fsdp2" and not all(
                _is_one_shard(parameter) for parameter in self._parameters()
            ):
                raise RuntimeError(
                    "some parameters are also replicated, or outside fully_shard: shards do not "
                    "add up to the gradient"
                )
            if self._elements != self._expected():
                raise RuntimeError(
                    "the optimizer updates other parameters than those whose gradients ranks share"
                )
            whole, small = self._gradient(), torch.stack(self._small).sum()
            self._small, self._elements = [], 0
            self._write(
                small,
                whole,
                self._counts.fresh,
                self._parts,
                Flag.SHARD if self._how == "fsdp2" else 0,
            )
        elif not self._how:
            last = self.backwards == max(self._before, 1)
            if (
                self._ranks > 1
                and last
                or self._ranks == 1
                and self.backwards == 1
                and self._before > 1
            ):
                self._local, self._samples = self._gradient(), self._counts.fresh
            elif self._ranks == 1 and last and self._local is not None:
                self._whole, self._last_samples = self._gradient(), self._counts.fresh

    def _before_clipping(self) -> None:
        """Note that the program's own all_reduce has been made by now."""
        if self._is_manual() and not self._done and self.backwards == max(self._before, 1):
            self._manual()

    def _is_manual(self) -> bool:
        """Return whether the program has summed as many numbers as the gradient has.

        A loss or a norm has fewer, averaged weights come later.
        """
        if (
            self._local is None
            or not self._summed
            or any(hasattr(parameter, "to_local") for parameter in self._parameters())
        ):
            return False
        return self._summed >= sum(
            parameter.numel() for parameter in self._parameters() if parameter.grad is not None
        )

    def _manual(self) -> None:
        assert self._local is not None
        self.shared = True
        if self.scaled:
            raise RuntimeError(
                "the program sums gradients itself and a GradScaler scales them: the scale "
                "changes in between"
            )
        self._how = "manual"
        self._write(self._local, self._gradient(), self._samples, self._ranks, 0)

    @property
    def has_parts(self) -> bool:
        """Whether this update or the last one came of several gradients.

        ``update`` has nothing to do otherwise.
        """
        return self._ranks > 1 or self.backwards > 1 or self._before > 1

    def update(self, optimizer: torch.optim.Optimizer) -> None:
        """Note that the update is about to be made.

        It is finished here, and the result says whether the next is measured.
        """
        known = self._optimizer()
        if known is None:
            self._optimizer = weakref.ref(optimizer)
        elif known is not optimizer:
            self.wanted, self._lost, self.why = (
                False,
                True,
                "several optimizers alternate: a gradient cannot be assigned to one of them",
            )
        same = self.backwards == self._before
        if self.wanted and not self._done and not self._stale and self._local is not None and same:
            # else two losses of one batch
            if self._ranks == 1 and self._last_samples > self._samples:
                self._accumulated()
            elif self._ranks > 1 and self._is_manual():
                self._manual()
        self._before = self.backwards
        self._new_update()
        parts = self._ranks > 1 or self._before > 1  # else there is nothing to measure
        self.wanted = parts and not self._lost and self._is_next()

    def _accumulated(self) -> None:
        """Write the norms of accumulated gradients.

        p.grad after the first backward is of a loss that the program has divided by their number,
        or the whole has grown by it.
        """
        assert self._local is not None
        self._how = "accumulation"
        self._write(
            self._local * self.backwards**2, self._whole, self._samples, self.backwards, 0, ranks=1
        )

    def _write(
        self,
        small: torch.Tensor,
        big: torch.Tensor,
        samples: int,
        parts: int,
        flags: int,
        ranks: int | None = None,
    ) -> None:
        self._done = True
        self._later.gradient(
            self._how, small, big, samples, parts, ranks or self._ranks, flags, self._counts.updates
        )
        self.why = ""

    def _is_next(self) -> bool:
        """Return whether the coming update is measured: some are, within the budget.

        Each rank decides alone: the reader keeps the updates that all ranks have.
        """
        coming = self._counts.updates + 1
        if coming >= self._look:
            now = time.perf_counter()
            share = _COST_SHARE if now - self._created < _FIRST_SECONDS else _COST_SHARE / 2
            wanted = self._every * self._spent / (share * (now - self._began))
            self._every = max(
                self._every, min(_SELDOM, 1 << math.ceil(math.log2(max(1.0, wanted))))
            )
            self._began, self._spent, self._look = now, 0.0, coming + _COST_UPDATES * self._every
        return coming % self._every == 0

    def _parameters(self) -> _Tensors:
        optimizer = self._optimizer()
        if optimizer is None:
            return []
        return [
            parameter
            for group in optimizer.param_groups
            for parameter in group["params"]
            if parameter.requires_grad
        ]

    def _expected(self) -> int:
        """Return how many elements of gradients ranks share if they are all of the optimizer's.

        DistributedDataParallel shares zeros for a parameter that was not used, FSDP2 nothing.
        """
        return sum(
            parameter.numel()
            for parameter in self._parameters()
            if self._how != "fsdp2" or parameter.grad is not None
        )

    def _gradient(self) -> torch.Tensor:
        return _squared_norm(
            [
                _local(parameter.grad)
                for parameter in self._parameters()
                if parameter.grad is not None
            ]
        )


def _only_tensors(values: Any) -> _Tensors:
    return [value for value in values if isinstance(value, torch.Tensor)]


def _squared_norm(tensors: _Tensors) -> torch.Tensor:
    """Sum the squares of all elements: float32 scalar.

    Raises:
        RuntimeError: a gradient is sparse.
        TypeError: it is a tensor of another kind.
    """
    by_type: dict[torch.dtype, _Tensors] = {}
    for tensor in tensors:
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            raise TypeError(f"a gradient is a {type(tensor).__name__}")
        if tensor.numel():
            by_type.setdefault(tensor.dtype, []).append(tensor)
    with torch.no_grad():
        norms = [
            norm.float()
            for dtype, same in by_type.items()
            for norm in torch._foreach_norm(
                same, 2, dtype=torch.float32 if dtype.itemsize < 4 else None
            )
        ]
        return torch.stack(norms).square().sum() if norms else torch.zeros(())


def _is_one_shard(parameter: torch.Tensor) -> bool:
    """Return whether ranks have disjoint parts of it.

    It is a DTensor on a mesh of one dimension, sharded.
    """
    mesh, placements = getattr(parameter, "device_mesh", None), getattr(parameter, "placements", ())
    return (
        mesh is not None
        and mesh.ndim == 1
        and all(placement.is_shard() for placement in placements)
    )


def _local(gradient: torch.Tensor) -> torch.Tensor:
    """Return the part of a DTensor that this rank has, or the tensor itself."""
    return gradient.to_local() if hasattr(gradient, "to_local") else gradient
