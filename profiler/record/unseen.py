"""Operations of our own on the program's tensors, which its modes and subclasses do not see.

A ``TorchDispatchMode`` or ``TorchFunctionMode`` of the program counts, logs or changes what it sees; a tensor subclass does as much with
each question for its shape. Below dispatch there are plain tensors only: what is computed on another kind must be taken out of it before.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from feedline.profiler.torch_internals import hide_from_dynamo

Function = TypeVar("Function", bound=Callable[..., Any])
NoFunctions, NoDispatch = torch._C.DisableTorchFunction, torch._C._DisableTorchDispatch


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
