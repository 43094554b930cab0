"""The private names of torch that feedline touches: all are listed, none is listed in vain, and the
installed torch has them.
"""

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from types import ModuleType

import pytest

from feedline.profiler import torch_internals
from feedline.profiler.torch_internals import PRIVATE_NAMES, TESTED, Private

ROOT = Path(__file__).parents[2]
PACKAGES = "feedline", "profiler", "analysis", "pipelines", "convergence"
#: Private, and not torch's: Python's, other libraries', and what feedline hangs on objects itself.
OTHERS = {"_asdict", "_replace", "_fields", "_exit", "_getframe", "_current_frames", "_args_from_interpreter_flags", "_processes", "_C"} | {
    "_is_gil_enabled", "_ActionsContainer", "_get_option_tuples", "_feedline", "_exif", "_mmap", "_shutdown"
} | {
    "_parent", "_OutputIterDataset", "_base_dataset"  # Grain's, Ray's
}  # fmt: skip
LISTED = {name for private in PRIVATE_NAMES for name in private.names.split()}


def is_private(name: object) -> bool:
    return isinstance(name, str) and name.startswith("_") and not name.startswith("__")


def own(tree: ast.AST) -> set[str]:
    """Private names that the module gives itself: of functions, classes, attributes of self and
    fields.
    """
    found = {
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    found |= {
        node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and of_self(node)
    }
    return found | {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def of_self(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")


def touched(tree: ast.AST) -> Iterator[str]:
    """Private names that a module takes from other objects or imports from torch."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr) and not of_self(node):
            yield node.attr
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("getattr", "setattr", "hasattr")
        ):
            yield from (
                arg.value
                for arg in node.args[1:2]
                if isinstance(arg, ast.Constant) and is_private(arg.value)
            )
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch"):
            yield from (
                part
                for part in (node.module or "").split(".")
                if is_private(part) and part != "_utils"
            )
            yield from (alias.name for alias in node.names if is_private(alias.name))


def in_code() -> set[str]:
    found = set[str]()
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            tree = ast.parse(path.read_text())
            found |= set(touched(tree)) - own(tree)
    return found - OTHERS


def holder(dotted: str) -> object:
    """A module, or what is found from one by attributes."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        for part in parts[length:]:
            found = getattr(found, part)
        return found
    raise ImportError(dotted)


def has(where: object, name: str) -> bool:
    """Whether an object has that name, or a module's source does."""
    if name.endswith("*"):
        return any(fnmatch(one, name) for one in dir(where))
    if hasattr(where, name):
        return True
    return (
        isinstance(where, ModuleType)
        and where.__file__ is not None
        and name in inspect.getsource(where)
    )


def test_every_private_name_that_the_code_touches_is_listed() -> None:
    assert not {name for name in in_code() if not any(fnmatch(name, listed) for listed in LISTED)}


def test_no_name_is_listed_that_the_code_no_longer_touches() -> None:
    code = (
        "\n".join(
            path.read_text()
            for package in PACKAGES
            for path in (ROOT / package).rglob("*.py")
            if path.name != "torch_internals.py"
        )
        + inspect.getsource(torch_internals).partition("def in_backward")[2]
    )

    assert not {name for name in LISTED if name.rstrip("*") not in code}


@pytest.mark.parametrize(
    "private", PRIVATE_NAMES, ids=lambda private: f"{private.where}: {private.names}"
)
def test_the_installed_torch_has_them(private: Private) -> None:
    where = holder(private.where)

    assert [name for name in private.names.split() if not has(where, name)] == []


def test_the_versions_named_are_those_of_the_last_torch_matrix() -> None:
    page = (ROOT / "docs" / "measured" / "torch-matrix.md").read_text()

    assert tuple(re.findall(r"torch (\d+\.\d+)\.", page.partition("|---")[0])) == TESTED
