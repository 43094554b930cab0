"""Runs feedline's own operations on the program's tensors without its modes and subclasses seeing them.

A ``TorchDispatchMode`` or ``TorchFunctionMode`` of the program counts, logs or changes what it sees; a tensor subclass does as much with
each question for its shape. Below dispatch there are plain tensors only: what is computed on another kind must be taken out of it before.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from feedline.profiler.torch_internals import hide_from_dynamo

_Function = TypeVar("Function", bound=Callable[..., Any])
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
    """The same for a function that only queries shapes and the like, for tensors of any kind; its dispatches still get an answer."""

    @functools.wraps(function)
    def quiet(*args: Any, **kwargs: Any) -> Any:
        with NoFunctionModes():
            return function(*args, **kwargs)

    hide_from_dynamo(quiet, whats_called=True)
    return quiet  # type: ignore[return-value]
