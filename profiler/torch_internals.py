"""Every private name of torch that feedline uses, and the questions that need one.

torch may rename or drop any of these without notice. tests/hooks/test_torch_internals.py compares
``PRIVATE_NAMES`` with feedline's own code and with the installed torch; ``scripts/torch-matrix``
runs it under each version of ``TESTED``. What several places ask is a function here; a name with
one user stays beside that user.

Some of them run feedline's own operations on the program's tensors without its modes and subclasses
seeing them. A ``TorchDispatchMode`` or ``TorchFunctionMode`` of the program counts, logs or changes
what it sees; a tensor subclass does as much with each question for its shape. Below dispatch there
are plain tensors only: what is computed on another kind must be taken out of it before.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch

TESTED = "2.8", "2.13", "2.15"  # versions of torch (docs/measured/torch-matrix.md)


class Private(NamedTuple):
    """One or more private names.

    Attributes:
        names: separated by spaces; ``*`` stands for any ending.
        where: the module that has them, or whose source does where they belong to a class or to its
            instances.
        use: what feedline needs them for.
    """

    names: str
    where: str
    use: str


PRIVATE_NAMES = (
    Private(
        "worker",
        "torch.utils.data._utils",
        "the module of a loader's workers: their loop, and a resumed iteration",
    ),
    Private(
        "_ResumeIteration _worker_loop _worker_info",
        "torch.utils.data._utils.worker",
        "recording in workers; whether this is one",
    ),
    Private("pin_memory", "torch.utils.data._utils", "what pinning takes"),
    Private(
        "collate",
        "torch.utils.data._utils",
        "what collating takes, and whether the collate function is torch's own",
    ),
    Private(
        "_DatasetKind",
        "torch.utils.data.dataloader",
        "fetching and collating, which all loaders do through it",
    ),
    Private(
        "_is_owned", "threading", "whether this thread is writing: a collection may begin then"
    ),
    Private("_iterator", "torch.utils.data.dataloader", "closing persistent workers"),
    Private(
        "_workers _worker_result_queue _shutdown_workers",
        "torch.utils.data.dataloader",
        "a loader's processes and the queue of batches",
    ),
    Private(
        "_rcvd_idx _send_idx _task_info _in_order",
        "torch.utils.data.dataloader",
        "which batch comes next, and how many are ready",
    ),
    Private("_pin_memory", "torch.utils.data.dataloader", "whether a thread pins the batches"),
    Private(
        "_dataset _num_workers",
        "torch.utils.data.dataloader",
        "whether the program changes the dataset between passes",
    ),
    Private(
        "_recv_bytes _ForkingPickler",
        "multiprocessing.queues",
        "the size of a batch and what unpickling takes (torch's queues are Python's)",
    ),
    Private("_wrapped_call_impl", "torch.nn.modules.module", "forward passes"),
    Private("_compiled_call_impl", "torch.nn.modules.module", "whether a module is compiled"),
    Private("_is_replica", "torch.nn.modules.module", "whether a module is DataParallel's copy"),
    Private("_Loss", "torch.nn.modules.loss", "which module computes the loss"),
    Private(
        "_BatchNorm _LazyNormBase", "torch.nn.modules.batchnorm", "which modules are batch norms"
    ),
    Private("_engine_run_backward", "torch.autograd.graph", "backward passes"),
    Private("_current_graph_task_id", "torch._C", "whether this thread is in a backward pass"),
    Private("_get_tracing_state", "torch._C", "whether torch.jit.trace is recording"),
    Private("_profiler_enabled", "torch.autograd", "whether the program profiles itself"),
    Private("_is_profiler_enabled", "torch.autograd.profiler", "the same"),
    Private("_RecordFunctionFast", "torch._C._profiler", "ranges in the program's own profile"),
    Private(
        "_global_optimizer_pre_hooks _global_optimizer_post_hooks",
        "torch.optim.optimizer",
        "updates between two windows of recording",
    ),
    Private("_DisableTorchDispatch", "torch._C", "operations that the program's modes do not see"),
    Private("_dynamo", "torch", "what was compiled, and when"),
    Private("callback utils", "torch._dynamo", "the same"),
    Private("_dynamo", "torch._C", "keeping dynamo from compiling feedline's frames"),
    Private("_FrameAction _FrameExecStrategy", "torch._C._dynamo.eval_frame", "the same"),
    Private(
        "_torchdynamo_inline",
        "torch._dynamo.eval_frame",
        "a wrapped function is compiled as what it wraps",
    ),
    Private("_functorch", "torch._C", "whether a transform of torch.func is under way"),
    Private(
        "_parse_dispatch_key _dispatch_keyset_full_after _dispatch_library",
        "torch._C",
        "kernels that count FLOP and see collectives",
    ),
    Private("_IncludeDispatchKeyGuard _ExcludeDispatchKeyGuard", "torch._C", "the same"),
    Private("_dispatch_get_all_op_names _profiler", "torch._C", "the operators of c10d; ranges"),
    Private(
        "_handle _schema _qualified_op_name",
        "torch._ops",
        "an operator's handle, arguments and name",
    ),
    Private(
        "_indices _values",
        "torch._tensor",
        "the parts of a sparse tensor that a collective moves or a model gets",
    ),
    Private(
        "_scaled_dot_product_flash_attention_for_cpu*",
        "torch.ops.aten",
        "operators that torch has no FLOP formula for",
    ),
    Private("_cdata", "torch.storage", "whether two tensors share memory"),
    Private(
        "_free_weak_ref",
        "torch.UntypedStorage",
        "references to tensors' memory that a signal's handler may interrupt",
    ),
    Private("_version", "torch._tensor", "whether a tensor was written to"),
    Private(
        "_comm_hooks",
        "torch.nn.parallel.distributed",
        "whether DDP's communication has a hook of the program's",
    ),
    Private(
        "_get_backend _get_sequence_number_for_group",
        "torch._C._distributed_c10d.ProcessGroup",
        "a group's backend and its collectives' numbers",
    ),
    Private(
        "_get_default_store", "torch.distributed.distributed_c10d", "comparing the ranks' clocks"
    ),
    Private("_fully_shard", "torch.distributed.fsdp", "when FSDP2 has reduced its gradients"),
    Private("_foreach_*", "torch", "optimizers over many tensors at once"),
    Private(
        "_are_functorch_transforms_active", "torch._C", "whether a batch norm may look at its input"
    ),
    Private(
        "_find_process_group",
        "torch.distributed.algorithms.model_averaging.hierarchical_model_averager",
        "the group that averages parameters",
    ),
    Private("_orig_mod", "torch._dynamo.eval_frame", "the module that a compiled one wraps"),
)


def in_backward() -> bool:
    """Return whether this thread is inside a backward pass.

    The engine's own threads count, and what a checkpoint recomputes.
    """
    return bool(torch._C._current_graph_task_id() != -1)


def is_traced() -> bool:
    """Return whether torch.jit.trace is recording this thread.

    It would include every query of a tensor.
    """
    return torch._C._get_tracing_state() is not None


def is_transformed() -> bool:
    """Return whether this thread is inside a transform of torch.func, such as vmap.

    Its tensors have no memory of their own.
    """
    return torch._C._functorch.peek_interpreter_stack() is not None


def is_profiled() -> bool:
    """Return whether the program runs torch.profiler or autograd's profiler."""
    profiler: Any = torch.autograd.profiler
    return getattr(profiler, "_is_profiler_enabled", False) or torch.autograd._profiler_enabled()


def hide_from_dynamo(function: Any, whats_called: bool = False) -> None:
    """Keep dynamo from compiling a frame of feedline instead of the user's.

    ``Sequential(...).compile()`` made 6 graphs instead of none. After a graph break it compiles
    whatever runs next, in a compiled training step our own questions, and fails on them. Where
    torch has no such thing, compiled models are a little slower to compile.

    Args:
        function: of feedline.
        whats_called: keep it from all that the function calls, too.
    """
    try:
        frames = torch._C._dynamo.eval_frame
        below = frames._FrameAction.SKIP if whats_called else frames._FrameAction.DEFAULT
        frames.set_code_exec_strategy(
            function.__code__, frames._FrameExecStrategy(frames._FrameAction.SKIP, below)
        )
    except AttributeError:
        pass


def dynamo_follows() -> bool:
    """Return whether dynamo compiles what this thread runs next.

    It is a compiled training step after a graph break. False: torch cannot tell.
    """
    try:
        return callable(torch._C._dynamo.eval_frame.get_eval_frame_callback())
    except AttributeError:
        return False


for _function in (in_backward, is_traced, is_profiled, dynamo_follows):
    hide_from_dynamo(_function)


_Function = TypeVar("_Function", bound=Callable[..., Any])
NoFunctionModes, NoDispatchModes = torch._C.DisableTorchFunction, torch._C._DisableTorchDispatch


def below_user_modes(function: _Function) -> _Function:
    """Run a function whose operations no mode and no subclass of the program sees."""

    @functools.wraps(function)
    def quiet(*args: Any, **kwargs: Any) -> Any:
        with NoFunctionModes(), NoDispatchModes():
            return function(*args, **kwargs)

    hide_from_dynamo(quiet, whats_called=True)
    return quiet  # type: ignore[return-value]


def below_function_modes(function: _Function) -> _Function:
    """Let a function that only queries shapes and the like take tensors of any kind.

    No mode of the program sees its calls; its dispatches still get an answer.
    """

    @functools.wraps(function)
    def quiet(*args: Any, **kwargs: Any) -> Any:
        with NoFunctionModes():
            return function(*args, **kwargs)

    hide_from_dynamo(quiet, whats_called=True)
    return quiet  # type: ignore[return-value]
