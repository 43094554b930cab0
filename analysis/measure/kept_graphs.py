"""The line that keeps the graph of each step, as ``total += loss`` does, from the program's source.

It is read when the report is made. What is computed from the model's result is followed through the
statements of the loop that calls the model.
"""

import ast
from collections.abc import Iterator, Sequence

from feedline.analysis.measure.source_lines import SourceLines, parsed

#: Calls whose result has no graph.
_ENDS = frozenset(
    ("item", "detach", "detach_", "tolist", "numpy", "float", "int", "len", "str", "format")
)
_KEEP = frozenset(("append", "appendleft", "extend", "add", "put", "insert"))
_Loop = ast.For | ast.While | ast.AsyncFor
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def keeping_line(called_at: str, source: SourceLines) -> str:
    """Return the line that keeps it, ``train.py:20``.

    It is empty where several may, or none was seen.

    Args:
        called_at: file and line that call the model.
    """
    file, _, line = called_at.rpartition(":")
    if not line.isdecimal():
        return ""
    tree = parsed(source.text(file))
    if tree is None:
        return ""
    found = sorted(set(_keeping(around(tree, int(line)), int(line))))
    return f"{file}:{found[0]}" if len(found) == 1 else ""


def around(tree: ast.Module, line: int) -> Sequence[ast.stmt]:
    """Return the body of the innermost loop around a line, or else of the function; or nothing."""
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, _Loop | _Function) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    loops = [node for node in around if isinstance(node, _Loop)]
    innermost = max(loops or around, key=lambda node: node.lineno, default=None)
    return innermost.body if innermost is not None else ()


def _keeping(body: Sequence[ast.stmt], line: int) -> Iterator[int]:
    """Lines of statements that add what has a graph to something that outlives the step."""
    carry: set[str] = set()
    fresh: set[str] = set()  # names that each step assigns before it adds to them
    for statement in in_order(body):
        has = statement.lineno <= line <= (statement.end_lineno or 0)
        if isinstance(statement, ast.Assign) and (has or _carries(statement.value, carry)):
            if any(
                _adds_to(statement.value, target) and ast.unparse(target) not in fresh
                for target in statement.targets
            ) or any(isinstance(target, ast.Subscript) for target in statement.targets):
                yield statement.lineno
            carry |= {name for target in statement.targets for name in _names(target)}
        elif isinstance(statement, ast.AugAssign) and (has or _carries(statement.value, carry)):
            if ast.unparse(statement.target) not in fresh:
                yield statement.lineno
        elif isinstance(statement, ast.Expr) and _keeps(statement.value, carry, has):
            yield statement.lineno
        if isinstance(statement, ast.Assign):
            fresh |= {
                ast.unparse(target)
                for target in statement.targets
                if not _adds_to(statement.value, target)
            }


def in_order(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Return the simple statements, those inside others too."""
    for statement in body:
        inner = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
        if any(inner):
            for part in inner:
                yield from in_order(part)
        else:
            yield statement


def _carries(value: ast.AST, carry: set[str]) -> bool:
    """Tell whether a value has a graph, as far as its names and calls tell."""
    if isinstance(value, ast.Name):
        return value.id in carry
    if isinstance(value, ast.Call):
        called = value.func
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        if name in _ENDS:
            return False
    if isinstance(value, ast.IfExp):
        return _carries(value.body, carry) or _carries(value.orelse, carry)
    return any(_carries(part, carry) for part in ast.iter_child_nodes(value))


def _adds_to(value: ast.AST, target: ast.AST) -> bool:
    """Tell whether it is ``target + ...``."""
    wanted = ast.unparse(target)
    return isinstance(value, ast.BinOp) and any(
        isinstance(part, ast.Name | ast.Attribute) and ast.unparse(part) == wanted
        for part in ast.walk(value)
    )


def _keeps(value: ast.AST, carry: set[str], has: bool) -> bool:
    return (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in _KEEP
        and (has or any(_carries(argument, carry) for argument in value.args))
    )


def _names(target: ast.AST) -> Iterator[str]:
    for part in ast.walk(target):
        if isinstance(part, ast.Name):
            yield part.id
