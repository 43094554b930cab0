"""What torch does besides in the model's stages, and the model's own loops, from sampled stacks."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import SHARE, Change, Evidence, Factor, Severity
from feedline.analysis.ledger.view.slow_code import FEWEST
from feedline.analysis.measure.code_places import FORWARD, LOSS, origin
from feedline.analysis.measure.code_tree import MAIN, CodeNode, PlaceTree, SampledCode
from feedline.analysis.measure.source_lines import parsed


@dataclass(frozen=True)
class Part:
    """A part of the step, known from sampled stacks.

    Attributes:
        stages: stage of the step -> share (0 to 1) of it.
        seconds: of the mean step.
        share: of the mean step, from 0 to 1.
        samples: that show it.
        place: file and line of the program; empty: not known.
    """

    stages: dict[str, float]
    seconds: float
    share: float
    samples: float
    place: str

    @property
    def severity(self) -> Severity:
        """Severity of what the part costs."""
        return Severity.of(self.share)

    def evidence(self, name: str, what: str) -> list[Evidence]:
        """Return its seconds and its share of the step, and the samples that show it.

        Args:
            name: what the ids of the evidence begin with.
            what: the seconds, in words.
        """
        return [
            Evidence(f"{name}_s", f"{what}, per step", self.seconds, "s"),
            Evidence(f"{name}_share", "share of the step", self.share, SHARE),
            Evidence("samples", "samples that show it", self.samples, "1"),
        ]

    def without(self) -> Change:
        """Return the stages without the part."""
        left = {stage: 1 - share for stage, share in self.stages.items()}
        return Change(stages={stage: Factor(part, part) for stage, part in left.items()})


def besides(facts: RuleInputs, name: str, of: str = "") -> Part | None:
    """Return what torch does besides in the stages of the step; None: too few samples show it.

    Args:
        name: RECOMPUTED or ANOMALY.
        of: the only place that counts; empty: all do.
    """
    code = facts.code
    found = code.besides.get(name) if code is not None else None
    if code is None or found is None:
        return None
    stages: dict[str, float] = {}
    samples = 0.0
    for place, seconds in found.places.items():
        tree = code.places.get((MAIN, place))
        if tree is None or not tree.weight.seconds or of and place != of:
            continue
        share = min(1.0, seconds / tree.weight.seconds)
        samples += share * tree.weight.number
        stages[place] = share
    if samples < FEWEST:
        return None
    took = sum(share * facts.step.stages.get(place, 0.0) for place, share in stages.items())
    file, line = max(found.lines, key=lambda at: found.lines[at], default=("", 0))
    place = f"{file}:{line}" if file else ""
    return Part(stages, took, took / facts.step.mean_s, samples, place)


def files_of(code: SampledCode) -> list[str]:
    """Return the files of the functions that were sampled."""
    nodes = (node for tree in code.places.values() for node in tree.root.under())
    return list(dict.fromkeys(node.file for node in nodes if node.file))


def line_with(code: SampledCode, pattern: str) -> str:
    """Return file and line of the program whose text has a pattern; empty: none is found.

    Looked for in the files of the functions that were sampled, as far as they can be read.
    """
    for file in files_of(code):
        for number, text in enumerate(code.source.whole(file), 1):
            if re.search(pattern, text.partition("#")[0]):
                return f"{file}:{number}"
    return ""


@dataclass(frozen=True)
class ModelLoop:
    """A loop in Python over a dimension of a tensor, inside the model or its loss.

    Attributes:
        part: of the step that its iterations take in forward; its place is that of the ``for``.
        function: that it is in.
    """

    part: Part
    function: str


def model_loop(facts: RuleInputs) -> ModelLoop | None:
    """Return the loop over a tensor's dimension that takes most of the model's forward; None.

    The program's source tells which lines are inside of one.
    """
    code = facts.code
    tree = code.places.get((MAIN, FORWARD)) if code is not None else None
    if code is None or tree is None or not tree.weight.seconds:
        return None
    found = dict(_loops(code, tree))
    place = max(found, key=lambda at: found[at][1], default="")
    if not place:
        return None
    function, seconds = found[place]
    share = seconds / tree.weight.seconds
    if share * tree.weight.number < FEWEST:
        return None
    stages = {name: share for name in (FORWARD, LOSS) if name in facts.step.stages}
    took = sum(facts.step.stages[name] * part for name, part in stages.items())
    samples = share * tree.weight.number
    part = Part(stages, took, took / facts.step.mean_s, samples, place)
    return ModelLoop(part, function)


def plain_loop(facts: RuleInputs) -> ModelLoop | None:
    """Return the loop inside the model that takes most of its forward without torch; None.

    Time in torch's own functions, and in modules that are called there, does not count.
    """
    code = facts.code
    tree = code.places.get((MAIN, FORWARD)) if code is not None else None
    if code is None or tree is None or not tree.weight.seconds:
        return None
    found = {
        f"{node.file}:{first}": (node.function, seconds)
        for node in tree.inside.under()
        for first, last in _plain_loops(code.source.text(node.file, node.function), node.function)
        if (seconds := sum(_plain_s(node, line) for line in node.lines if first <= line <= last))
    }
    place = max(found, key=lambda at: found[at][1], default="")
    function, seconds = found.get(place, ("", 0.0))
    share = seconds / tree.weight.seconds
    if share * tree.weight.number < FEWEST:
        return None
    took = share * facts.step.stages.get(FORWARD, 0.0)
    samples = share * tree.weight.number
    part = Part({FORWARD: share}, took, took / facts.step.mean_s, samples, place)
    return ModelLoop(part, function)


def _plain_s(node: CodeNode, line: int) -> float:
    """Seconds of a line without torch's functions, and without modules that it calls."""
    libraries = sum(
        seconds
        for chain, seconds in node.below.get(line, {}).items()
        if chain and all(origin(frame.file).owner != "torch" for frame in chain)
    )
    called = sum(
        child.called_at[line] / child.seconds * sum(_plain_s(child, at) for at in child.lines)
        for child in node.calls.values()
        if line in child.called_at and child.seconds and child.function != "forward"
    )
    return node.in_c.get(line, 0.0) + libraries + called


#: What shows that a loop is of tensors or modules.
_OF_TORCH = re.compile(
    r"\b(torch|nn|F|functional)\.|\bself\b|\.(view|reshape|unsqueeze|matmul|detach|to)\("
)
#: What shows the same where the loop names neither NumPy nor math, which have it too. Operators and
#: methods of tensors have no frames of Python, so their time looks like the loop's own.
_OF_ARRAYS = re.compile(
    r"@|\[[^]]*(None|\.\.\.|:,|, :)|\.(squeeze|transpose|permute|exp|log|softmax|log_softmax|logsumexp|"
    r"tanh|sigmoid|relu|reciprocal|sqrt|pow|clamp|cumsum|gather|mean|sum|norm)\("
)
_OF_OTHERS = re.compile(r"\b(np|numpy|math)\.")


@lru_cache(maxsize=64)
def _plain_loops(text: str, function: str) -> tuple[tuple[int, int], ...]:
    """Return first and last lines of a function's loops and comprehensions that name nothing of torch."""
    tree = parsed(text) if text else None
    kinds = (ast.For, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
    return tuple(
        (loop.lineno, loop.end_lineno or loop.lineno)
        for of in (ast.walk(tree) if tree is not None else ())
        if isinstance(of, ast.FunctionDef) and of.name == function
        for loop in ast.walk(of)
        if isinstance(loop, kinds) and not _is_of_torch(ast.unparse(loop))
    )


def _is_of_torch(loop: str) -> bool:
    """Tell whether a loop, as it is written, is of tensors or modules."""
    of_arrays = _OF_ARRAYS.search(loop) and not _OF_OTHERS.search(loop)
    return bool(_OF_TORCH.search(loop) or of_arrays)


def _loops(code: SampledCode, tree: PlaceTree) -> Iterator[tuple[str, tuple[str, float]]]:
    """(file and line of a loop, (its function, seconds inside of it))."""
    for node in tree.inside.under():
        loops = _loops_of(node, code.source.text(node.file, node.function))
        for first, last in loops:
            seconds = sum(s for line, s in node.lines.items() if first < line <= last)
            if seconds:
                yield f"{node.file}:{first}", (node.function, seconds)


def _loops_of(node: CodeNode, text: str) -> tuple[tuple[int, int], ...]:
    return _over_dimensions(text, node.function) if text else ()


#: How the size of a dimension is written.
_SIZES = (".shape", ".size(", "len(")


@lru_cache(maxsize=64)
def _over_dimensions(text: str, function: str) -> tuple[tuple[int, int], ...]:
    """Return first and last lines of a function's loops over a dimension of a tensor.

    Loops over modules are none: their number is part of the model.
    """
    tree = parsed(text)
    return tuple(
        (loop.lineno, loop.end_lineno or loop.lineno)
        for of in (ast.walk(tree) if tree is not None else ())
        if isinstance(of, ast.FunctionDef) and of.name == function
        for loop in ast.walk(of)
        if isinstance(loop, ast.For) and _is_over_dimension(loop, _sizes(of))
    )


def _sizes(function: ast.FunctionDef) -> frozenset[str]:
    """Return the names that a function gives to sizes: ``batch, steps, _ = x.shape``."""
    return frozenset(
        name.id
        for line in ast.walk(function)
        if isinstance(line, ast.Assign) and _is_size(ast.unparse(line.value))
        for target in line.targets
        for name in ast.walk(target)
        if isinstance(name, ast.Name)
    )


def _is_size(written: str) -> bool:
    return any(size in written for size in _SIZES) and "len(self." not in written


def _is_over_dimension(loop: ast.For, sizes: frozenset[str]) -> bool:
    """Tell whether a loop counts to the size of something, and does not pick modules by that."""
    counts, index = loop.iter, loop.target
    if not isinstance(counts, ast.Call) or not isinstance(index, ast.Name):
        return False
    if ast.unparse(counts.func) not in ("range", "trange"):
        return False
    named = {name.id for name in ast.walk(counts) if isinstance(name, ast.Name)}
    if not _is_size(ast.unparse(counts)) and not named & sizes:
        return False
    return not _picks_modules(loop, index.id)


def _picks_modules(loop: ast.For, index: str) -> bool:
    """Tell whether a loop calls ``self.layers[index]``, at once or by a name that it gives it."""

    def picked(part: ast.AST) -> bool:
        return isinstance(part, ast.Subscript) and any(
            isinstance(name, ast.Name) and name.id == index for name in ast.walk(part)
        )

    named = {
        target.id
        for line in ast.walk(loop)
        if isinstance(line, ast.Assign) and picked(line.value)
        for target in line.targets
        if isinstance(target, ast.Name)
    }
    return any(
        picked(call.func) or isinstance(call.func, ast.Name) and call.func.id in named
        for call in ast.walk(loop)
        if isinstance(call, ast.Call)
    )
