"""How many floating-point operations one training step makes: counted once, operator by operator, without a change to the program.

For the time of one step after warm-up, operators that torch has a formula for (torch.utils.flop_counter.flop_registry: matrix products,
convolutions, attention) get a kernel at a dispatch key that nothing else uses. A guard includes that key around forward and backward, the
autograd engine hands it on to its threads, and the kernel notes shapes and dispatches on to what would have run. Other operators and other
threads do not pass it, and after the step it is gone. tests/flops holds parameters to be bit-identical.

Why no TorchDispatchMode: composite operators ask whether one is active and then take other paths, and autocast is off inside its handler.
torch.nn.Bilinear under autocast gave other numbers.

A step reaches from one update of an optimizer to its next (the first optimizer where several take turns), so that accumulated gradients
and networks that are trained in turns are counted whole. Counted is what trains: modules in training mode with gradients enabled.

Not counted: what torch.compile compiled, DataParallel's threads, replays of CUDA graphs, custom kernels, what is in no module.
"""

import functools
import sys
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import optimizer as torch_optimizer

from feedline.profiler import clock, masks
from feedline.profiler.events import Stage
from feedline.profiler.record.recorder import Span, recorder

NAME, GIVES = "FLOP", "floating-point operations of one training step"
WARM_UP = 2  # updates before the step that is counted: what is compiled has been compiled by then
KEY = "TESTING_ONLY_GenericMode"  # above autograd and autocast; torch itself registers nothing there
Formula = Callable[..., Any]


class Counter:
    """Notes the operators that run in ``call``. What goes wrong with the counting stays in here.

    Raises:
        RuntimeError, AttributeError: this torch is built differently.
    """

    def __init__(self) -> None:
        self._noted: list[Callable[[], int]] = []
        key = torch._C._parse_dispatch_key(KEY)
        if key is None:
            raise RuntimeError(f"this torch has no dispatch key {KEY}")
        self._key = key
        self._only = torch._C.DispatchKeySet(self._key)
        self._below = torch._C._dispatch_keyset_full_after(self._key)
        self._libraries = [torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")]
        try:
            self._libraries[0].fallback(torch.library.fallthrough_kernel, KEY)
            for packet, formula in formulas().items():
                for overload in (getattr(packet, name) for name in packet.overloads() if "out" not in name):
                    self._libraries[1].impl(overload, self._kernel(overload, formula), KEY, with_keyset=True)
        except BaseException:
            self.close()
            raise

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function; operators in it are noted."""
        with torch._C._IncludeDispatchKeyGuard(self._key):
            return function(*args, **kwargs)

    def take(self) -> int:
        """FLOP of what was noted since the last time.

        Raises:
            Exception: whatever a formula raises.
        """
        noted, self._noted = self._noted, []
        return sum(int(count()) for count in noted)

    def close(self) -> None:
        """Take the kernels away."""
        for library in self._libraries:
            library._destroy()

    def _kernel(self, overload: Any, formula: Formula) -> Callable[..., Any]:
        redispatch, without, only, below = overload.redispatch, torch._C._ExcludeDispatchKeyGuard, self._only, self._below
        of_shapes = getattr(formula, "__wrapped__", None)  # what torch's wrapper does to all arguments takes 60 us

        def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
            with without(only):  # what the operator is made of is not counted again
                out = redispatch(keyset & below, *args, **kwargs)
            try:
                if of_shapes is None:  # it reads values: offsets of sequences in one tensor
                    self._noted.append(functools.partial(int, formula(*args, **kwargs, out_val=out)))
                else:  # later, and without the tensors: they would be kept in memory
                    given = {name: shape(arg) for name, arg in kwargs.items()}
                    self._noted.append(functools.partial(of_shapes, *map(shape, args), out_shape=shape(out), **given))
            except Exception as error:
                self._noted.append(functools.partial(_again, error))
            return out

        return kernel


def formulas() -> dict[Any, Formula]:
    """torch's own of its operators, and the same for the attention of CPUs, which it leaves out."""
    from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count

    found = {packet: formula for packet, formula in flop_registry.items() if getattr(packet, "_qualified_op_name", "").startswith("aten::")}
    on_cpu = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu, torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    found.setdefault(on_cpu[0], lambda *args, **_: sdpa_flop_count(*map(shape, args[:3])))
    found.setdefault(on_cpu[1], lambda *args, **_: sdpa_backward_flop_count(*map(shape, args[:4])))
    return found


def _again(error: Exception) -> int:
    raise error


def shape(value: Any) -> Any:
    """The shape in a tensor's place; what is no tensor as it is."""
    if isinstance(value, torch.Tensor):
        return value.shape
    return tuple(map(shape, value)) if isinstance(value, tuple) else value


class FlopTap:
    """Watches updates, and counts the step after the first few. Never raises into the training.

    Args:
        tell: called with the outcome.
    """

    def __init__(self, tell: Callable[[str, bool, str], None]) -> None:
        self._tell = tell
        self._steps_of: Callable[[], object] = lambda: None  # weak: the optimizer whose updates are steps
        self._updates = 0
        self._counter: Counter | None = None
        self._begun = 0
        self._flop = {Stage.FORWARD: 0, Stage.BACKWARD: 0}
        self._remove_hook = torch_optimizer.register_optimizer_step_post_hook(self._after_update).remove
        recorder.flops = self

    def stop(self) -> None:
        """The training ends."""
        self._remove_hook()
        self._end(f"the training ended after {self._updates} updates, before one step could be counted")

    def begin(self, module: torch.nn.Module | None) -> Counter | None:
        """What a forward (None: a backward) is to be called through; None where it is not to be counted."""
        if self._counter is None or module is not None and not (module.training and torch.is_grad_enabled()):
            return None
        try:
            problem = why_not(module)
        except Exception as error:
            problem = masks.error(error)
        if problem is None:
            return self._counter
        self._end(problem)
        return None

    def end(self, counter: Counter, span: Span) -> None:
        """Add up what was noted inside a span."""
        try:
            self._begun = self._begun or span.start
            self._flop[Stage.BACKWARD if span.stage is Stage.BACKWARD else Stage.FORWARD] += counter.take()
        except Exception as error:
            self._end(masks.error(error))

    def _after_update(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if recorder.flops is not self or torch.compiler.is_compiling() or recorder.main is None:
            return
        if self._steps_of() is None:
            self._steps_of = weakref.ref(optimizer)
        if self._steps_of() is not optimizer:
            return
        self._updates += 1
        try:
            if self._counter is not None:
                self._write()
            elif self._updates >= WARM_UP and not torch.autograd._profiler_enabled():  # or the program's profile shows it
                self._counter = Counter()
        except Exception as error:
            self._end(masks.error(error))

    def _write(self) -> None:
        forward, backward = self._flop.values()
        if forward and recorder.main is not None:
            recorder.main.add(Stage.FLOP, self._begun, clock.wall_ns() - self._begun, nbytes=forward, extra=backward)
        self._end(None if forward else "no operator ran that torch has a formula for: a replayed CUDA graph, or kernels of its own")

    def _end(self, problem: str | None) -> None:
        if recorder.flops is not self:
            return
        recorder.flops = None
        if self._counter is not None:
            self._counter.close()
        self._tell(NAME, problem is None, problem or GIVES)


def why_not(module: torch.nn.Module | None) -> str | None:
    """Why the operations of this forward or backward cannot be counted; None: they can."""
    dynamo = sys.modules.get("torch._dynamo")  # importing it takes a second
    if dynamo is not None and dynamo.utils.counters.get("frames"):
        return "torch.compile compiled something, and the operations of compiled code are not seen"
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return "it runs inside a transform of torch.func"
    for part in module.modules() if module is not None else ():
        if getattr(part, "_compiled_call_impl", None) is not None or dynamo is not None and isinstance(part, dynamo.OptimizedModule):
            return f"{type(part).__name__} is compiled by torch.compile, and the operations of compiled code are not seen"
        if isinstance(part, torch.nn.DataParallel):
            return "DataParallel runs its replicas in other threads"
    return None
