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


def _call_after(begin: _Begin, owner: Any, name: str, sentinel: Any, original: Any) -> Any:
    """Begin, and return what a sentinel calls now: with taps where that is possible.

    That is what the attribute leads to, if it led to the sentinel and no longer does. What a
    program has set in its place stays there and calls the sentinel, so that goes to the original.
    """
    led_here = vars(owner).get(name) is sentinel
    begin()
    now = getattr(owner, name)
    return now if led_here and vars(owner).get(name) is not sentinel else original


def _before_method(owner: Any, name: str, begin: _Begin) -> Any:
    original = getattr(owner, name)

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return _call_after(begin, owner, name, method, original)(self, *args, **kwargs)

    return method


def _before_call(begin: _Begin) -> Any:
    original = torch.nn.Module.__call__
    is_compiling = torch.compiler.is_compiling
    with_gradients = torch.is_grad_enabled

    def __call__(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        if is_compiling() or not with_gradients() or not getattr(self, "training", False):
            return original(self, *args, **kwargs)
        call = _call_after(begin, torch.nn.Module, "__call__", __call__, original)
        return call(self, *args, **kwargs)

    hide_from_dynamo(skip_in_warnings(__call__))
    return __call__


def _before_function(owner: Any, name: str, begin: _Begin) -> Any:
    original = getattr(owner, name)

    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        if dynamo_follows():
            return original(*args, **kwargs)
        return _call_after(begin, owner, name, function, original)(*args, **kwargs)

    hide_from_dynamo(skip_in_warnings(function))
    return function
