"""Imports go only downwards, through the layers below, and in no circle."""

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = {
    "feedline": "feedline",
    **{name: f"feedline.{name}" for name in ("profiler", "analysis", "pipelines", "convergence")},
}
LAYERS = [  # the highest first; a module belongs to the longest name that begins its own
    ["feedline.cli", "feedline.__main__"],
    ["feedline"],
    ["feedline.analysis", "feedline.pipelines", "feedline.convergence"],
    ["feedline.profiler.follow"],
    ["feedline.profiler.session", "feedline.profiler.attach"],
    ["feedline.profiler.taps", "feedline.profiler.samplers"],
    ["feedline.profiler.record"],
    ["feedline.profiler.stacks"],
    ["feedline.profiler.store"],
    ["feedline.profiler"],
]
HEIGHT = {name: -number for number, layer in enumerate(LAYERS) for name in layer}
APART = set(LAYERS[2])  # of one height, and none imports another
NEVER = {"feedline.analysis": {"torch", "nvidia", "torchvision"}}
#: Packages inside analysis, the highest first: none reaches one above it, by whatever modules.
ANALYSIS = [
    "report",
    "diff",
    "scaling",
    "explain",
    "rules",
    "predict",
    "convergence",
    "ledger",
    "ranks",
    "measure",
    "traces",
    "text",
]
INSIDE = ("feedline.analysis.", "feedline.profiler.")


@cache
def modules() -> dict[str, Path]:
    found = {}
    for folder, package in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            found[".".join([package, *(part for part in parts if part != "__init__")])] = path
    return found


def part_of(module: str) -> str:
    return max((name for name in HEIGHT if f"{module}.".startswith(f"{name}.")), key=len)


@cache
def imports(path: Path) -> list[str]:
    known, names = modules(), []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: import it by its full name"
            full = [f"{node.module}.{alias.name}" for alias in node.names]
            names += [name if name in known else str(node.module) for name in full]
    return names


def reached(graph: dict[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    todo = [start]
    while todo:
        new = graph[todo.pop()] - found
        found |= new
        todo += new
    return found


def circles(graph: dict[str, set[str]]) -> set[frozenset[str]]:
    """Modules that can be reached from each other."""
    while ends := {module for module, others in graph.items() if not others}:
        graph = {module: others - ends for module, others in graph.items() if module not in ends}
    reach = {module: reached(graph, module) for module in graph}
    return {
        frozenset(other for other in others if module in reach[other])
        for module, others in reach.items()
        if module in others
    }


def graph_of(known: dict[str, Path]) -> dict[str, set[str]]:
    """Module -> those that it imports, inside functions too."""
    return {
        module: {name for name in imports(path) if name in known} - {module}
        for module, path in known.items()
    }


def packages(graph: dict[str, set[str]], depth: int) -> dict[str, set[str]]:
    """The same of packages that many levels down; a module that lies higher stands for itself."""

    def package(module: str) -> str:
        return ".".join(module.split(".")[: depth + 1])

    found: dict[str, set[str]] = {package(module): set() for module in graph}
    for module, others in graph.items():
        found[package(module)] |= {package(other) for other in others} - {package(module)}
    return found


def test_modules_import_each_other_in_no_circle():
    assert circles(graph_of(modules())) == set()


@pytest.mark.parametrize("depth", [2, 3])
def test_packages_import_each_other_in_no_circle(depth):
    """A package's ``__init__`` is what its modules are reached through, and counts as one of them."""
    inside = {
        module: others
        for module, others in graph_of(modules()).items()
        if module.startswith(INSIDE)
    }

    assert (
        circles(
            packages({module: others & inside.keys() for module, others in inside.items()}, depth)
        )
        == set()
    )


def test_no_package_of_analysis_reaches_a_higher_one():
    graph = packages(graph_of(modules()), 2)
    there = {path.name for path in (ROOT / "analysis").iterdir() if (path / "__init__.py").exists()}
    assert there == set(ANALYSIS)

    for number, name in enumerate(ANALYSIS):
        above = {f"feedline.analysis.{other}" for other in ANALYSIS[:number]}
        assert not reached(graph, f"feedline.analysis.{name}") & above


def test_no_module_imports_one_of_a_higher_layer_or_a_sibling_kept_apart():
    upward = []
    for module, path in modules().items():
        part = part_of(module)
        for name in imports(path):
            if name.split(".")[0] != "feedline":
                continue
            other = part_of(name)
            if HEIGHT[other] > HEIGHT[part] or (other != part and {part, other} <= APART):
                upward.append(f"{module} imports {name}")
    assert not upward


def test_analysis_imports_neither_torch_nor_dali():
    found = [
        f"{module} imports {name}"
        for module, path in modules().items()
        for name in imports(path)
        if name.split(".")[0] in NEVER.get(part_of(module), ())
    ]
    assert not found


def test_every_module_is_looked_at():
    assert {
        "feedline",
        "feedline.profiler.events",
        "feedline.analysis.ledger.finding",
        "feedline.pipelines",
    } <= set(modules())
