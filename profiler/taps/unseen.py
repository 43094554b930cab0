"""Operations of our own on the program's tensors, which its modes and subclasses do not see.

A ``TorchDispatchMode`` or ``TorchFunctionMode`` of the program counts, logs or changes what it sees; a tensor subclass does as much with
each question for its shape. Below dispatch there are plain tensors only: what is computed on another kind must be taken out of it before.

Private to torch, the same in 2.8 to 2.15.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch

Function = TypeVar("Function", bound=Callable[..., Any])
NoFunctions, NoDispatch = torch._C.DisableTorchFunction, torch._C._DisableTorchDispatch


def hide_from_dynamo(function: Any, whats_called: bool = False) -> None:
    """Keep dynamo from compiling a frame of ours in place of the user's: ``Sequential(...).compile()`` made 6 graphs where there was none.
    After a graph break it compiles whatever runs next, in a compiled training step our own questions, and fails on them.

    Private to torch, the same in 2.8 to 2.15; where it is missing, compiled models are a little slower to compile.

    Args:
        whats_called: keep it from all that the function calls, too.
    """
    try:
        frames = torch._C._dynamo.eval_frame
        below = frames._FrameAction.SKIP if whats_called else frames._FrameAction.DEFAULT
        frames.set_code_exec_strategy(function.__code__, frames._FrameExecStrategy(frames._FrameAction.SKIP, below))
    except AttributeError:
        pass


def dynamo_follows() -> bool:
    """Whether dynamo compiles what this thread runs next: a compiled training step after a graph break.

    Private to torch, the same in 2.8 to 2.15; False where it is missing.
    """
    try:
        return callable(torch._C._dynamo.eval_frame.get_eval_frame_callback())
    except AttributeError:
        return False


hide_from_dynamo(dynamo_follows)


def unseen(function: Function) -> Function:
    """Run a function where no mode and no subclass of the program's sees its operations."""

    @functools.wraps(function)
    def quiet(*args: Any, **kwargs: Any) -> Any:
        with NoFunctions(), NoDispatch():
            return function(*args, **kwargs)

    hide_from_dynamo(quiet, whats_called=True)
    return quiet  # type: ignore[return-value]


def unasked(function: Function) -> Function:
    """The same for a function that only asks for shapes and the like, of tensors of any kind: what it asks of dispatch is answered."""

    @functools.wraps(function)
    def quiet(*args: Any, **kwargs: Any) -> Any:
        with NoFunctions():
            return function(*args, **kwargs)

    hide_from_dynamo(quiet, whats_called=True)
    return quiet  # type: ignore[return-value]
