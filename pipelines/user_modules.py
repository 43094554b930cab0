"""Loads the user's transforms and model from ``module:name``.

Modules are found as by ``python -m``, from the working folder.
"""

import difflib
import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from feedline.profiler.errors import UserCodeError

if TYPE_CHECKING:
    from torch import nn

_GUARD = 'put what trains under `if __name__ == "__main__":`, so that the module can be imported'


def load_transforms(name: str) -> Callable[[Any], Any]:
    """Load the transform to be applied to every PIL image.

    Args:
        name: ``module:name`` of a transform (a Compose, a module, a function of an image), or of a
            class or function without required arguments that gives one.

    Raises:
        UserCodeError: there is no such name, or the code raises; with its file and line.
    """
    named = _find(name, "--transforms")
    transform: Any = _call(named, name, "--transforms") if _is_maker(named) else named
    if not callable(transform):
        kind = type(transform).__name__
        hint = (
            "torchvision.transforms.Compose(...) makes one of a list"
            if isinstance(transform, (list, tuple))
            else "it must take a PIL image"
        )
        raise UserCodeError(f"--transforms {name} is a {kind}, not a transform: {hint}")
    return transform


def makes_transforms(name: str) -> bool:
    """Tell whether the object given to ``load_transforms`` must be called for the transform.

    Raises:
        UserCodeError: as there.
    """
    return _is_maker(_find(name, "--transforms"))


def load_model(name: str) -> "nn.Module":
    """Load the model.

    Args:
        name: ``module:name`` of an nn.Module, or of a class or function without required arguments
            that gives one.

    Raises:
        UserCodeError: there is no such name, the code raises, or the result is not an nn.Module;
            with its file and line.
    """
    from torch import nn

    named = _find(name, "--model")
    model = named if isinstance(named, nn.Module) else _call(named, name, "--model")
    if not isinstance(model, nn.Module):
        raise UserCodeError(
            f"--model {name} returns a {type(model).__name__}, not an nn.Module: give the model, "
            f"its class, or a function that returns it"
        )
    return model


def _find(name: str, option: str) -> Any:
    """Return the object of that name."""
    module_name, colon, attributes = name.partition(":")
    if not module_name or not colon or not attributes:
        raise UserCodeError(
            f"{option} {name}: expected MODULE:NAME, such as train:model for `model` in train.py"
        )
    named: Any = _import(module_name, option)
    for attribute in attributes.split("."):
        if not hasattr(named, attribute):
            near = difflib.get_close_matches(attribute, dir(named), n=1)
            hint = (
                f": did you mean {near[0]}?"
                if near
                else f": give it that name at the top level of {_file(named) or module_name}"
            )
            raise UserCodeError(
                f"{option} {name}: {_file(named) or module_name} has no {attribute}{hint}"
            )
        named = getattr(named, attribute)
    return named


def _import(name: str, option: str) -> ModuleType:
    if not _safe_path() and sys.path[:1] != [os.getcwd()]:
        sys.path.insert(0, os.getcwd())
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise UserCodeError(
                f"{option}: no module {error.name} in {os.getcwd()} or on sys.path: "
                "change to its folder, and write its name as for `python -m`"
            ) from error
        raise UserCodeError(
            f"{option}: importing {name} failed at {_place(error)}: {error}: install it, or leave "
            f"it out"
        ) from error
    except (Exception, SystemExit) as error:
        raise UserCodeError(
            f"{option}: importing {name} raised {_said(error)} at {_place(error)}: {_GUARD}"
        ) from error


def _safe_path() -> bool:
    """Tell whether Python was told (-P, -I) not to look into the working folder."""
    return bool(sys.flags.isolated or getattr(sys.flags, "safe_path", False))


def _is_maker(named: Any) -> bool:
    """Tell whether it is to be called to give a transform.

    A class is, and a function without required arguments; a function of an image is a transform
    itself.
    """
    if inspect.isclass(named):
        return True
    return inspect.isfunction(named) and not _required(named)


def _required(named: Any) -> list[str]:
    """List the names of the arguments that must be given."""
    try:
        parameters = inspect.signature(named).parameters.values()
    except (TypeError, ValueError):
        return []
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty and parameter.kind not in variable
    ]


def _call(named: Any, name: str, option: str) -> Any:
    if not callable(named):
        return named
    if required := _required(named):
        raise UserCodeError(
            f"{option} {name} at {_defined(named)} requires {', '.join(required)}: give a "
            f"function without required arguments that calls it"
        )
    try:
        return named()
    except (Exception, SystemExit) as error:
        raise UserCodeError(
            f"{option}: {name}() raised {_said(error)} at {_place(error)}: make it work without "
            f"arguments"
        ) from error


def _said(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


def _place(error: BaseException) -> str:
    """Return ``file:line`` of the innermost line that is the user's own.

    That is below the working folder, and not in a library installed there.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    mine = [frame for frame in frames if _is_users(frame.filename)] or frames
    return f"{os.path.relpath(mine[-1].filename) if _is_users(mine[-1].filename) else mine[-1].filename}:{mine[-1].lineno}"


def _is_users(file: str) -> bool:
    return (
        file.startswith(os.getcwd() + os.sep) and "site-packages" not in file and file != __file__
    )


def _defined(named: Any) -> str:
    try:
        file, (_, line) = inspect.getsourcefile(named), inspect.getsourcelines(named)
    except (OSError, TypeError):
        return f"{getattr(named, '__module__', '?')}"
    return f"{os.path.relpath(file or '?')}:{max(line, 1)}"


def _file(named: Any) -> str | None:
    file = getattr(named, "__file__", None)
    return os.path.relpath(file) if file else None
