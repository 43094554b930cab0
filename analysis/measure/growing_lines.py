"""The line that adds to something which outlives the step, or keeps its graph, from the source.

It is read when the report is made. A container that is made, emptied or cut in the same loop or
function does not count, nor does one that is bounded, nor a number that is added.
"""

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from feedline.analysis.measure.source_lines import SourceLines, parsed

#: Calls whose result has no graph.
_ENDS = frozenset(
    ("item", "detach", "detach_", "tolist", "numpy", "float", "int", "len", "str", "format")
)
_KEEP = frozenset(("append", "appendleft", "extend", "add", "put", "insert"))
_OF_LISTS = frozenset(("append", "appendleft", "extend", "insert"))
_OF_SETS = frozenset(("add", "update", "setdefault"))
_EMPTIES = frozenset(("clear", "pop", "popleft", "popitem", "remove"))
_JOINS = frozenset(("cat", "concat", "concatenate", "hstack", "vstack", "append"))
_NUMBERS = frozenset(("item", "float", "int", "len", "bool", "time", "perf_counter"))
_HASHED = frozenset(("dict", "set", "defaultdict", "OrderedDict", "Counter"))
_UPDATES = frozenset(("update", "update_state", "add_batch"))
_IS_HOOKED = re.compile(r"register_\w*hook")
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Loop = ast.For | ast.While | ast.AsyncFor


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


def line_of_loop(called_at: str, source: SourceLines, each_step: bool = True) -> str:
    """Return the line of a training loop that adds to what outlives a step, ``train.py:20``.

    It is empty where several may, or none was seen. Args as of ``lines_of_loop``.
    """
    return _only(lines_of_loop(called_at, source, each_step))


def lines_of_loop(called_at: str, source: SourceLines, each_step: bool = True) -> list[str]:
    """Return all lines of a training loop that add to what outlives a step.

    Args:
        called_at: file and line that call the model.
        each_step: it is in the loop of the steps; otherwise in one around it.
    """
    file, _, line = called_at.rpartition(":")
    tree = parsed(source.text(file)) if line.isdecimal() else None
    if tree is None:
        return []
    loops = _around(tree, int(line))
    if each_step:
        bodies = [loops[-1].body] if loops else []
        left: set[int] = set()
    else:
        bodies = [loops[0].body] if len(loops) > 1 else []
        left = {statement.lineno for statement in in_order(loops[-1].body)} if loops else set()
    lines = {line for line in _additions(bodies, tree) if line not in left}
    return [f"{file}:{line}" for line in sorted(lines)]


def _only(lines: Sequence[str]) -> str:
    return lines[0] if len(lines) == 1 else ""


def line_of_skip(called_at: str, source: SourceLines) -> str:
    """Return the condition under which a loop goes on before it calls the model, ``train.py:20``.

    Args:
        called_at: file and line that call the model; empty: unknown.
    """
    file, _, line = called_at.rpartition(":")
    tree = parsed(source.text(file)) if line.isdecimal() else None
    lines = [
        part.lineno
        for loop in (reversed(_around(tree, int(line))) if tree is not None else ())
        for part in loop.body
        if isinstance(part, ast.If) and part.lineno < int(line)
        if any(isinstance(inner, ast.Continue) for inner in part.body)
    ]
    return f"{file}:{lines[0]}" if lines else ""


def line_of_samples(made_by: str, collate: str, source: SourceLines) -> str:
    """Return the line of a data set that adds to what outlives a sample; empty as above.

    Args as of ``lines_of_samples``.
    """
    return _only(lines_of_samples(made_by, collate, source))


def lines_of_samples(made_by: str, collate: str, source: SourceLines) -> list[str]:
    """Return all lines of a data set that add to what outlives a sample.

    A function below ``functools.cache``, without a limit, is one as well.

    Args:
        made_by: file and line of the function that makes samples.
        collate: name of the function that collates.
    """
    file, _, line = made_by.rpartition(":")
    tree = parsed(source.text(file)) if line.isdecimal() else None
    if tree is None:
        return []
    functions = [one for one in ast.walk(tree) if isinstance(one, _Function)]
    called = [one for one in functions if _holds(one, int(line))][-1:]
    called += [one for one in functions if one.name == collate.rpartition(".")[2]]
    seen: list[_Function] = []
    while called:
        function = called.pop()
        if function not in seen:
            seen.append(function)
            names = {_name(node.func) for node in ast.walk(function) if isinstance(node, ast.Call)}
            called += [one for one in functions if one.name in names and not _is_cached(one)]
    caches = [one for one in functions if _is_cached(one) and _called_by(one, seen)]
    lines = {*_additions([one.body for one in seen], tree), *(one.lineno for one in caches)}
    return [f"{file}:{line}" for line in sorted(lines)]


def line_of_hooks(file: str, source: SourceLines) -> str:
    """Return the line of a hook on modules or tensors that adds to what outlives it; empty as above.

    What another function of the file empties does not count.
    """
    tree = parsed(source.text(file))
    if tree is None:
        return ""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
    hooked = {_name(node.args[0]) for node in calls if _IS_HOOKED.fullmatch(_name(node.func))}
    functions = [one for one in ast.walk(tree) if isinstance(one, _Function)]
    bodies = [one.body for one in functions if one.name in hooked]
    emptied = {
        name
        for one in functions
        if one.name != "__init__"
        for name in _ended(list(in_order(one.body)))
    }
    lines = set(_additions(bodies, tree, emptied))
    return f"{file}:{lines.pop()}" if len(lines) == 1 else ""


def line_of_updates(file: str, source: SourceLines) -> str:
    """Return the line of a loop that gives tensors of the loop to an object of another module.

    Empty where there are several, or none; an object that the file resets, or makes in a loop, does
    not count.
    """
    tree = parsed(source.text(file))
    if tree is None:
        return ""
    imported = set(_imported(tree))
    assigned = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
    made = {
        ast.unparse(target)
        for node in assigned
        if isinstance(node.value, ast.Call)
        if ast.unparse(node.value.func).partition(".")[0] in imported
        for target in node.targets
    }
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    reset = {
        ast.unparse(call.func.value)
        for call in calls
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("reset", "clear")
    }
    loops = [node for node in ast.walk(tree) if isinstance(node, _Loop)]
    lasting = made.difference(reset, *(_of_loop(loop) for loop in loops))
    lines = {
        statement.lineno
        for loop in loops
        for statement in in_order(loop.body)
        if _updated(statement, _of_loop(loop)) in lasting
    }
    return f"{file}:{lines.pop()}" if len(lines) == 1 else ""


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((one.asname or one.name).partition(".")[0] for one in node.names)


def _of_loop(loop: _Loop) -> set[str]:
    """Return the names that a loop assigns."""
    return {
        node.id
        for node in ast.walk(loop)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def _updated(statement: ast.stmt, fresh: Collection[str]) -> str:
    """Return the object that a statement updates with something new; empty: it does not."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return ""
    given = [value for value in call.args if not _is_number(value, ())]
    given += [word.value for word in call.keywords if not _is_number(word.value, ())]
    names = {node.id for value in given for node in ast.walk(value) if isinstance(node, ast.Name)}
    return ast.unparse(call.func.value) if call.func.attr in _UPDATES and names & {*fresh} else ""


def _around(tree: ast.Module, line: int) -> list[_Loop | _Function]:
    """Return the loops around a line, the innermost last; without one, the function."""
    around = [node for node in ast.walk(tree) if isinstance(node, _Loop | _Function)]
    around = sorted((node for node in around if _holds(node, line)), key=lambda node: node.lineno)
    functions = [node for node in around if isinstance(node, _Function)]
    begun = functions[-1].lineno if functions else 0
    loops = [node for node in around if isinstance(node, _Loop) and node.lineno > begun]
    return [*loops] or [*functions[-1:]]


def _holds(node: _Loop | _Function, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or 0)


def _additions(
    bodies: Iterable[Sequence[ast.stmt]], tree: ast.Module, emptied: Collection[str] = ()
) -> Iterator[int]:
    """Yield the lines that add to what outlives these statements.

    Args:
        emptied: what is made or emptied elsewhere, and does not count.
    """
    counters = set(_counters(tree))
    for body in bodies:
        statements = list(in_order(body))
        ends = {*_ended(statements), *emptied}
        for statement in statements:
            target, value = _added(statement, tree)
            if target and target not in ends and not _is_number(value, counters):
                yield statement.lineno


def _added(statement: ast.stmt, tree: ast.Module) -> tuple[str, ast.AST | None]:
    """Return what a statement adds to, and what; empty: it adds to nothing."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        call = statement.value
        if not isinstance(call.func, ast.Attribute) or not call.args:
            return "", None
        target = ast.unparse(call.func.value)
        bounded, hashed = _made_as(target, tree)
        if (call.func.attr in _OF_LISTS and not bounded) or (call.func.attr in _OF_SETS and hashed):
            return target, call.args[-1]
    elif isinstance(statement, ast.Assign):
        for one in statement.targets:
            if isinstance(one, ast.Subscript) and _made_as(ast.unparse(one.value), tree)[1]:
                return ast.unparse(one.value), statement.value
            if _joins(statement.value, ast.unparse(one)):
                return ast.unparse(one), statement.value
    elif isinstance(statement, ast.AugAssign) and isinstance(
        statement.value, ast.List | ast.ListComp
    ):
        return ast.unparse(statement.target), statement.value
    return "", None


def _joins(value: ast.AST, target: str) -> bool:
    """Tell whether a value is the target with more at its end."""
    if isinstance(value, ast.BinOp):
        sides = [value.left, value.right]
        return any(ast.unparse(side) == target for side in sides) and any(
            isinstance(side, ast.List) for side in sides
        )
    parts = [
        ast.unparse(part) for part in ast.walk(value) if isinstance(part, ast.Name | ast.Attribute)
    ]
    return isinstance(value, ast.Call) and _name(value.func) in _JOINS and target in parts[1:]


def _ended(statements: Sequence[ast.stmt]) -> Iterator[str]:
    """Yield what is made, emptied or cut by these statements."""
    for statement in statements:
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            for target in targets:
                if not _joins(statement.value, ast.unparse(target)):
                    yield from _written(target)
        elif isinstance(statement, ast.Delete):
            yield from (_root(target) for target in statement.targets)
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                if node.func.attr in _EMPTIES:
                    yield ast.unparse(node.func.value)


def _written(target: ast.expr) -> Iterator[str]:
    """Yield the names that an assignment makes new; of a slice, what is cut."""
    if isinstance(target, ast.Name | ast.Attribute):
        yield ast.unparse(target)
    elif isinstance(target, ast.Tuple | ast.List):
        for part in target.elts:
            yield from _written(part)
    elif isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Slice):
        yield ast.unparse(target.value)


def _root(target: ast.expr) -> str:
    return ast.unparse(target.value if isinstance(target, ast.Subscript) else target)


def _made_as(target: str, tree: ast.Module) -> tuple[bool, bool]:
    """Return whether a container is bounded, and whether it has keys, as it is made in the file."""
    bounded = hashed = False
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        pairs = [(one, node.value) for one in targets]
        if isinstance(node.value, ast.Tuple) and isinstance(targets[0], ast.Tuple):
            pairs = list(zip(targets[0].elts, node.value.elts))
        for one, value in pairs:
            if ast.unparse(one) != target:
                continue
            called = _name(value.func) if isinstance(value, ast.Call) else ""
            hashed |= isinstance(value, ast.Dict | ast.Set) or called in _HASHED
            bounded |= (
                called == "deque"
                and isinstance(value, ast.Call)
                and (len(value.args) > 1 or any(word.arg == "maxlen" for word in value.keywords))
            )
    return bounded, hashed


def _is_number(value: ast.AST | None, counters: Collection[str]) -> bool:
    if isinstance(value, ast.Tuple | ast.List):
        return all(_is_number(part, counters) for part in value.elts)
    if isinstance(value, ast.Name):
        return value.id in counters
    return isinstance(value, ast.Constant) or (
        isinstance(value, ast.Call) and _name(value.func) in _NUMBERS
    )


def _counters(tree: ast.Module) -> Iterator[str]:
    """Yield the names that loops count with."""
    for node in ast.walk(tree):
        if isinstance(node, ast.For) and isinstance(node.iter, ast.Call):
            target, called = node.target, _name(node.iter.func)
            if called == "enumerate" and isinstance(target, ast.Tuple):
                target = target.elts[0]
            if called in ("range", "enumerate") and isinstance(target, ast.Name):
                yield target.id


def _is_cached(function: _Function) -> bool:
    """Tell whether its results are kept without a limit."""
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and _name(decorator.func) == "lru_cache":
            sizes = [*decorator.args[:1], *(word.value for word in decorator.keywords[:1])]
            if sizes and isinstance(sizes[0], ast.Constant) and sizes[0].value is None:
                return True
        elif _name(decorator) == "cache":
            return True
    return False


def _called_by(function: _Function, functions: Sequence[_Function]) -> bool:
    return any(
        isinstance(node, ast.Call) and _name(node.func) == function.name
        for one in functions
        for node in ast.walk(one)
    )


def _name(called: ast.AST) -> str:
    """Return the last name of what is called."""
    return called.attr if isinstance(called, ast.Attribute) else str(getattr(called, "id", ""))
