"""The line that keeps something of each sample or step, from the program's source.

It is read when the report is made. Only where one line alone can be it, it is named.
"""

import ast
import re
from collections.abc import Iterator

from feedline.analysis.measure.source_lines import SourceLines, parsed

_ADDS = frozenset(("append", "appendleft", "extend", "add"))
#: Of a function: its results are kept, all of them or as many as it says.
_CACHES = frozenset(("cache", "lru_cache"))
_MANY = 10_000  # results that a cache keeps: from here on it is as good as all
_NAMED = re.compile(r"(?P<name>[\w.]+) \((?P<file>[^()]+):(?P<line>\d+)\)")
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def caching_line(sample_code: str, source: SourceLines) -> str:
    """Return the line at which a dataset keeps something of each sample, ``train.py:20``.

    It is empty where several may, or none was seen.

    Args:
        sample_code: the function that makes a sample, ``Rows.__getitem__ (train.py:18)``.
    """
    named = _NAMED.fullmatch(sample_code)
    tree = parsed(source.text(named["file"])) if named else None
    if named is None or tree is None:
        return ""
    kind = next(
        (
            part
            for part in ast.walk(tree)
            if isinstance(part, ast.ClassDef)
            and part.lineno <= int(named["line"]) <= (part.end_lineno or 0)
        ),
        None,
    )
    found = {*_cached(tree), *(_kept_by(kind) if kind is not None else ())}
    return f"{named['file']}:{found.pop()}" if len(found) == 1 else ""


def adding_line(file: str, function: str, source: SourceLines) -> str:
    """Return the line of a training loop that adds to something in each step; empty as above.

    Args:
        function: that contains the loop; of a module itself, ``line 30``.
    """
    tree = parsed(source.text(file))
    if tree is None:
        return ""
    inside: ast.AST = tree
    if function.isidentifier():
        functions = [
            part for part in ast.walk(tree) if isinstance(part, _Function) and part.name == function
        ]
        if len(functions) != 1:
            return ""
        inside = functions[0]
    found = {
        line for loop in _loops(inside) for line, name in _additions(loop) if name not in _own(loop)
    }
    return f"{file}:{found.pop()}" if len(found) == 1 else ""


def _loops(inside: ast.AST) -> Iterator[ast.For | ast.While]:
    """Loops that train: those around a backward pass."""
    for part in ast.walk(inside):
        if isinstance(part, ast.For | ast.While) and ".backward(" in ast.unparse(part):
            yield part


def _own(loop: ast.For | ast.While) -> frozenset[str]:
    """Names that a loop gives in each step: what is added to these ends with it."""
    return frozenset(
        name.id
        for name in ast.walk(loop)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
    )


def _additions(within: ast.AST, owner: str = "") -> Iterator[tuple[int, str]]:
    """Lines that add to something, ``owner.x.append(...)``, and what they add to.

    Args:
        owner: whose attribute it is; empty: any name.
    """
    for part in ast.walk(within):
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute):
            if part.func.attr in _ADDS and _is_of(part.func.value, owner):
                yield part.lineno, ast.unparse(part.func.value)
        elif isinstance(part, ast.Assign):
            for target in part.targets:
                if isinstance(target, ast.Subscript) and _is_of(target.value, owner):
                    yield part.lineno, ast.unparse(target.value)


def _is_of(value: ast.AST, owner: str) -> bool:
    if not owner:
        return isinstance(value, ast.Name | ast.Attribute)
    return (
        isinstance(value, ast.Attribute)
        and isinstance(value.value, ast.Name)
        and value.value.id == owner
    )


def _kept_by(kind: ast.ClassDef) -> Iterator[int]:
    """Lines of a class, outside of its __init__, that add to what an object of it has."""
    for part in kind.body:
        if isinstance(part, _Function) and part.name != "__init__":
            yield from (line for line, _ in _additions(part, "self"))


def _cached(tree: ast.Module) -> Iterator[int]:
    """Lines that make a function keep all of its results."""
    for part in ast.walk(tree):
        if isinstance(part, _Function):
            for decorator in part.decorator_list:
                if not isinstance(decorator, ast.Call) and _name(decorator) == "cache":
                    yield decorator.lineno
        if isinstance(part, ast.Call) and _name(part.func) in _CACHES and _keeps_all(part):
            yield part.lineno


def _name(called: ast.AST) -> str:
    return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")


def _keeps_all(call: ast.Call) -> bool:
    """Tell whether a cache has no limit: ``lru_cache(maxsize=None)``, ``cache(function)``."""
    if _name(call.func) == "cache":
        return True
    sizes = [*(word.value for word in call.keywords if word.arg == "maxsize"), *call.args[:1]]
    if not sizes:
        return False
    values = [part.value for part in ast.walk(sizes[0]) if isinstance(part, ast.Constant)]
    return any(value is None or isinstance(value, int) and value > _MANY for value in values)
