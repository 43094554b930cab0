"""Sentinels: hooks on calls that every training makes."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import DataLoader

from feedline.profiler.taps.patch import Patches, skip_in_warnings
from feedline.profiler.torch_internals import dynamo_follows, hide_from_dynamo

_Begin = Callable[[], None]


def set_sentinels(patches: Patches, begin: _Begin) -> None:
    """Call ``begin`` before the first batch, forward with gradients, backward or update.

    It must undo the patches, and not raise.

    Raises:
        AttributeError: this version is built differently.
    """
    patches.set(DataLoader, "__iter__", _before_method(DataLoader, "__iter__", begin))
    call = _before_call(begin)
    patches.set(torch.nn.Module, "_wrapped_call_impl", call)  # the name that it is pickled with
    patches.set(torch.nn.Module, "__call__", call)
    patches.set(torch.autograd, "backward", _before_function(torch.autograd, "backward", begin))


def _before_method(owner: Any, name: str, begin: _Begin) -> Any:
    @functools.wraps(getattr(owner, name))
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        begin()
        return getattr(owner, name)(self, *args, **kwargs)

    return method


def _before_call(begin: _Begin) -> Any:
    original = torch.nn.Module.__call__
    is_compiling = torch.compiler.is_compiling
    with_gradients = torch.is_grad_enabled

    def __call__(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        if is_compiling() or not with_gradients() or not getattr(self, "training", False):
            return original(self, *args, **kwargs)
        begin()
        return torch.nn.Module.__call__(self, *args, **kwargs)

    hide_from_dynamo(skip_in_warnings(__call__))
    return __call__


def _before_function(owner: Any, name: str, begin: _Begin) -> Any:
    original = getattr(owner, name)

    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        if dynamo_follows():
            return original(*args, **kwargs)
        begin()
        return getattr(owner, name)(*args, **kwargs)

    hide_from_dynamo(skip_in_warnings(function))
    return function
