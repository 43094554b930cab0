"""Counts the floating-point operations of one training step, operator by operator.

The program stays as it is. Operators that torch has a formula for
(torch.utils.flop_counter.flop_registry: matrix products, convolutions, attention) get a kernel at a
dispatch key that nothing else uses. During one step after warm-up a guard includes that key around
forward and backward, the autograd engine passes it on to its threads, and the kernel records shapes
and dispatches on to the original kernel. Other operators and other threads do not pass through it.
tests/flops checks that parameters stay bit-identical.

The kernels are registered once per process and never removed. An operator may be on its way through
that key at any time: an optimizer steps inside backward, a recording ends inside a forward, and
torch hands a thread's keys on to futures and threads of its own. An operator that meets a key
without a kernel raises. What ends with the step is the guard, which the call that set it takes
back, and the noting; after that no operator comes by, and one that still does passes through.

Why not a TorchDispatchMode: composite operators check whether one is active and then take other
paths, and autocast is off inside its handler; torch.nn.Bilinear under autocast gave different
numbers. Why not torch.profiler: there is one session per process, and the program may need it. Why
not the shapes that module hooks see: they miss functional calls, recomputation, and gradients that
are not computed.

A step reaches from one update of an optimizer to its next (one optimizer's, if several
alternate: CountedSteps), so that accumulated gradients and networks that are trained alternately are counted
completely. An update inside a forward or backward ends the step when that returns. Only modules in
training mode with gradients enabled are counted.

Not counted: code compiled by torch.compile, DataParallel's threads, replays of CUDA graphs, custom
kernels, operations outside modules. Sequences of different lengths in one tensor count with the
longest length: the others would have to be read from the GPU.
"""

import os
import sys
from collections import Counter as Counts
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from feedline.profiler import clock, masks, message
from feedline.profiler.events import Arithmetic, Stage
from feedline.profiler.fail_open import reraise_of_handler
from feedline.profiler.message import Message, ReportHook
from feedline.profiler.record.recorder import Span, recorder
from feedline.profiler.taps.patch import skip_in_warnings
from feedline.profiler.taps.updates import CountedSteps, updates
from feedline.profiler.torch_internals import (
    NoFunctionModes,
    is_profiled,
    is_traced,
    is_transformed,
)

NAME, GIVES = "FLOP", "floating-point operations of one training step"
_SWITCH = "FEEDLINE_FLOPS"  # an environment variable; 0: nothing is counted
_UNCOUNTED = Message(
    "torch counts no FLOP for the operators that ran (custom kernels, a replayed CUDA graph, or "
    "element-wise ones only)",
    message.NO_FLOP,
)
# updates before the step that is counted: what is compiled has been compiled by then
_WARM_UP_CALLS = 2
# above autograd and autocast; torch itself registers nothing there
_KEY = "TESTING_ONLY_GenericMode"
_MUCH = 0.1  # of the operations, to be told as what they are computed in
_Formula = Callable[..., Any]


class _Noted(NamedTuple):
    """A call of an operator, without its tensors, which would stay in memory."""

    packet: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    out: Any
    computed_in: Arithmetic


class _FlopKernels:
    """The kernels of this process.

    Attributes:
        noted: takes calls of operators; None: they pass through.
    """

    def __init__(self) -> None:
        self.noted: list[_Noted] | None = None
        self._modules: list[
            Any
            # torch.library.Library would take its kernels away at exit, where threads may still compute
        ] = []
        self._problem: str | None = None
        self._only: Any = None

    def register(self) -> Any:
        """Register them, once. Returns the dispatch key.

        Raises:
            RuntimeError: this torch is built differently, or another library has taken the key.
                Nothing is tried a second time.
        """
        key = torch._C._parse_dispatch_key(_KEY)
        if not self._modules and self._problem is None:
            try:
                self._register(key)
            except Exception as error:
                reraise_of_handler()
                self._problem = masks.error(error)
        if self._problem is not None:
            raise RuntimeError(self._problem)
        return key

    def _register(self, key: Any) -> None:
        if key is None:
            raise RuntimeError(f"this torch has no dispatch key {_KEY}")
        self._only, below = torch._C.DispatchKeySet(key), torch._C._dispatch_keyset_full_after(key)
        self._modules = [
            torch._C._dispatch_library("IMPL", name, _KEY, __file__, 0) for name in ("_", "aten")
        ]
        self._modules[0].fallback(_KEY, torch.library.fallthrough_kernel, False)
        for packet in _formulas():
            for overload in (
                getattr(packet, name) for name in packet.overloads() if "out" not in name
            ):
                self._modules[1].impl(
                    overload.name(), _KEY, self._kernel(packet, overload, below), True
                )

    def _kernel(self, packet: Any, overload: Any, below: Any) -> Callable[..., Any]:
        redispatch = overload.redispatch
        without = torch._C._ExcludeDispatchKeyGuard
        only = self._only

        def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
            with without(only):  # what the operator is made of is not counted again
                out = redispatch(keyset & below, *args, **kwargs)
            noted = self.noted
            # a trace would hold the question for the shape
            if noted is not None and not is_traced():
                try:
                    with NoFunctionModes():
                        stand_ins = {name: _shape(arg) for name, arg in kwargs.items()}
                        noted.append(
                            _Noted(
                                packet,
                                _shapes(args),
                                stand_ins,
                                _shape(out),
                                _computed_in(packet, out),
                            )
                        )
                except Exception as error:
                    reraise_of_handler()
                    noted.append(_Noted(None, (error,), {}, None, Arithmetic.UNKNOWN))
            return out

        return kernel

    def forget_after_fork(self) -> None:
        """Reset in the child of a fork, which may be inside a counted step."""
        self.noted = None


#: From the slowest to the fastest, on most devices.
_BY_SPEED = (
    Arithmetic.UNKNOWN,
    Arithmetic.FLOAT64,
    Arithmetic.FLOAT32,
    Arithmetic.TF32,
    Arithmetic.FLOAT16,
    Arithmetic.BFLOAT16,
)
_OF_DTYPE = {
    torch.float64: Arithmetic.FLOAT64,
    torch.float32: Arithmetic.FLOAT32,
    torch.float16: Arithmetic.FLOAT16,
    torch.bfloat16: Arithmetic.BFLOAT16,
}

_flop_kernels = _FlopKernels()
os.register_at_fork(after_in_child=_flop_kernels.forget_after_fork)


class FlopCounter:
    """Records the operators that run in ``call``. Errors of the counting do not leave it.

    Attributes:
        problem: why the operations cannot be known; None so far.

    Raises:
        RuntimeError: this torch is built differently.
    """

    def __init__(self) -> None:
        self._key = _flop_kernels.register()
        self.problem: str | None = None
        _flop_kernels.noted = []

    @skip_in_warnings
    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function and record its operators."""
        try:
            with torch._C._IncludeDispatchKeyGuard(self._key):
                return function(*args, **kwargs)
        except BaseException as error:
            self.problem = f"the step that was counted raised {type(error).__qualname__}"
            raise

    def take(self) -> Counts[Arithmetic]:
        """Take the FLOP of what was recorded since the last call, by what they were computed in.

        Raises:
            Exception: whatever a formula raises.
        """
        counts: Counts[Arithmetic] = Counts()
        noted = _flop_kernels.noted
        if noted is not None:
            _flop_kernels.noted = []
            known = _formulas()
            for call in noted:
                counts[call.computed_in] += _flop(known, call)
        return counts

    def close(self) -> None:
        """Stop recording."""
        _flop_kernels.noted = None


def _flop(known: dict[Any, _Formula], call: _Noted) -> int:
    """Return the operations of one call.

    Raises:
        Exception: whatever the formula raises.
    """
    if call.packet is None:
        raise call.args[0]
    formula = known[call.packet]
    # what torch's wrapper does to all arguments takes 60 us
    of_shapes = getattr(formula, "__wrapped__", None)
    if of_shapes is not None:
        return int(of_shapes(*call.args, **call.kwargs, out_shape=call.out))
    stand_ins = {name: _proxy(arg) for name, arg in call.kwargs.items()}
    return int(formula(*map(_proxy, call.args), **stand_ins, out_val=_proxy(call.out)))


def _computed_in(packet: Any, out: Any) -> Arithmetic:
    """Return what an operator computes in.

    Its result tells: autocast converts the operands only after this key.
    """
    tensor = out[0] if isinstance(out, tuple) and out else out
    if not isinstance(tensor, torch.Tensor):
        return Arithmetic.UNKNOWN
    if (
        tensor.dtype is torch.float32
        and tensor.is_cuda
        and allows_tf32("convolution" in str(packet))
    ):
        return Arithmetic.TF32
    return _OF_DTYPE.get(tensor.dtype, Arithmetic.UNKNOWN)


def allows_tf32(convolves: bool) -> bool:
    """Return whether the program lets torch compute float32 products, or convolutions, with TF32.

    Up to torch 2.8 only old names tell.
    """
    setting = (
        getattr(torch.backends.cudnn, "conv", None) if convolves else torch.backends.cuda.matmul
    )
    precision = getattr(setting, "fp32_precision", None)
    if precision is not None:
        return bool(precision == "tf32")
    return bool(
        torch.backends.cudnn.allow_tf32 if convolves else torch.backends.cuda.matmul.allow_tf32
    )


def _fastest(flop_by_arithmetic: Counts[Arithmetic]) -> Arithmetic:
    """Return the fastest arithmetic of much of these FLOP."""
    total = flop_by_arithmetic.total()
    return max(
        (arithmetic for arithmetic, flop in flop_by_arithmetic.items() if flop >= _MUCH * total),
        key=_BY_SPEED.index,
        default=Arithmetic.UNKNOWN,
    )


class _Unread:
    """Proxy for a tensor in formulas that need more than its shape.

    It is on device "meta", so there are no values.
    """

    device = torch.device("meta")

    def __init__(self, shape: torch.Size) -> None:
        self.shape = shape

    def size(self, dim: int) -> int:
        return self.shape[dim]


def _proxy(value: Any) -> Any:
    if isinstance(value, torch.Size):
        return _Unread(value)
    return tuple(map(_proxy, value)) if isinstance(value, tuple) else value


def _formulas() -> dict[Any, _Formula]:
    """Return torch's own formulas of its operators.

    It leaves out the attention of CPUs, whose formula is here.
    """
    from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count

    formulas = {
        packet: formula
        for packet, formula in flop_registry.items()
        if getattr(packet, "_qualified_op_name", "").startswith("aten::")
    }
    on_cpu = (
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu,
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward,
    )
    formulas.setdefault(
        on_cpu[0], lambda *args, **_: sdpa_flop_count(*(arg.shape for arg in args[:3]))
    )
    formulas.setdefault(
        on_cpu[1], lambda *args, **_: sdpa_backward_flop_count(*(arg.shape for arg in args[:4]))
    )
    return formulas


def _shapes(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(map(_shape, values))


def _shape(value: Any) -> Any:
    """Return the shape of a tensor; other values unchanged.

    Raises:
        TypeError: the sizes are symbols of torch.export or torch.compile, which would learn
            something from being counted.
    """
    if isinstance(value, torch.Tensor):
        sizes = value.shape
        if not all(type(size) is int for size in sizes):
            raise TypeError("its shapes are symbolic")
        return sizes
    return _shapes(value) if type(value) is tuple else value


class FlopTap:
    """Watches updates, and counts an early step of each training. Never raises into the training.

    Args:
        report: called with the outcome.
    """

    def __init__(self, report: ReportHook) -> None:
        self._report = report
        self._unfollow: Callable[[], None] = lambda: None
        self._counter: FlopCounter | None = None
        self._steps = CountedSteps()
        if os.environ.get(_SWITCH) == "0":
            report(NAME, False, f"switched off by {_SWITCH}=0")
            return
        self.training_begins()
        recorder.on_new_training = self.training_begins

    def training_begins(self) -> None:
        """Count an early step of the training that begins."""
        self._unfollow()
        self._steps = CountedSteps()
        self._forget()
        self._unfollow = updates.follow(after=self._after_update)
        recorder.flops = self

    def _forget(self) -> None:
        """Drop what was counted of a step."""
        if self._counter is not None:
            self._counter.close()
        self._counter = None
        self._begun = 0
        self._flop = {Stage.FORWARD: 0, Stage.BACKWARD: 0}
        self._computed_in: Counts[Arithmetic] = Counts()

    def stop(self) -> None:
        """Note that the training ends."""
        recorder.on_new_training = None
        self._unfollow()
        too_few = f"the training ended after {self._steps.updates} updates, before one step could be counted"
        self._end(Message(too_few, message.TOO_FEW_UPDATES))

    def begin(self, module: torch.nn.Module | None) -> FlopCounter | None:
        """Return the wrapper through which a forward (None: a backward) is to be called.

        None: it is not counted.
        """
        if (
            self._counter is None
            or module is not None
            and not (getattr(module, "training", False) and torch.is_grad_enabled())
        ):
            return None
        if is_traced():
            return None
        try:
            problem = _why_not_counted(module)
        except Exception as error:
            reraise_of_handler()
            problem = masks.error(error)
        if problem is None:
            return self._counter
        self._end(problem)
        return None

    def end(self, counter: FlopCounter, span: Span) -> None:
        """Add up the operations recorded inside a span."""
        try:
            if recorder.flops is not self:
                return
            self._begun = self._begun or span.start
            counts = counter.take()
            self._flop[Stage.BACKWARD if span.stage is Stage.BACKWARD else Stage.FORWARD] += (
                counts.total()
            )
            self._computed_in += counts
        except Exception as error:
            reraise_of_handler()
            self._end(masks.error(error))

    def _after_update(self, optimizer: torch.optim.Optimizer) -> None:
        if recorder.flops is not self or torch.compiler.is_compiling() or recorder.main is None:
            return
        if self._steps.ends(optimizer):
            updates.between_calls(self._step_ended)

    def _step_ended(self) -> None:
        if recorder.flops is not self:
            return
        try:
            if self._counter is not None and self._steps.taken_over:
                self._forget()  # it has seen many steps
            if self._counter is not None:
                self._write(self._counter)
            elif (
                self._steps.updates >= _WARM_UP_CALLS and not is_profiled()
            ):  # or the program's profile shows it
                self._counter = FlopCounter()
        except Exception as error:
            reraise_of_handler()
            self._end(masks.error(error))

    def _write(self, counter: FlopCounter) -> None:
        forward, backward = self._flop.values()
        if counter.problem is not None:
            self._end(counter.problem)
            return
        if forward and recorder.main is not None:
            wall = clock.wall_ns() - self._begun
            recorder.main.add(
                Stage.FLOP,
                self._begun,
                wall,
                nbytes=forward,
                extra=backward,
                number=_fastest(self._computed_in),
            )
        self._end(None if forward else _UNCOUNTED)

    def _end(self, problem: str | None) -> None:
        if recorder.flops is not self:
            return
        recorder.flops = None
        self._unfollow()
        if self._counter is not None:
            self._counter.close()
        self._report(NAME, problem is None, problem or GIVES)


def _why_not_counted(module: torch.nn.Module | None) -> str | None:
    """Say why the operations of this forward or backward cannot be counted; None if they can."""
    dynamo = sys.modules.get("torch._dynamo")  # importing it takes a second
    if dynamo is not None and dynamo.utils.counters.get("frames"):
        return "torch.compile compiled something, and the operations of compiled code are not seen"
    if is_transformed():
        return "it runs inside a transform of torch.func"
    for part in module.modules() if module is not None else ():
        if (
            getattr(part, "_compiled_call_impl", None) is not None
            or dynamo is not None
            and isinstance(part, dynamo.OptimizedModule)
        ):
            return (
                f"{type(part).__name__} is compiled by torch.compile, and the operations of "
                f"compiled code are not seen"
            )
        if isinstance(part, torch.nn.DataParallel):
            return "DataParallel runs its replicas in other threads"
    return None
