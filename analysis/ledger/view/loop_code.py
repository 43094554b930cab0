"""The training loop's own code, and what makes batches in it, from sampled stacks."""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.known_call import CallFound, known_call
from feedline.analysis.ledger.known_calls import PER_SAMPLE, PER_STEP
from feedline.analysis.ledger.view.slow_code import FEWEST, deepest
from feedline.analysis.measure.code_node import CodeNode
from feedline.analysis.measure.code_places import LOGGING, OTHER
from feedline.analysis.measure.code_tree import MAIN

#: Places in which the loop does neither forward nor backward, nor anything else of torch's.
_LOOP = ((MAIN, OTHER), (MAIN, LOGGING))
#: Of the loop's own code: a known call that takes this much of it is told.
_MOST_OF_LOOP = 1 / 3


def loop_call(facts: RuleInputs) -> tuple[CallFound, float] | None:
    """Return the known slow call that takes most of the training loop's own code, and its share
    (0 to 1) of that code; None: there is none, or stacks were not sampled.
    """
    code, root = facts.code, _loop_code(facts)
    if code is None or root is None:
        return None
    calls = tuple(call for call in PER_STEP if facts.on_gpu or not call.on_gpu)
    found = known_call(root, calls, code.source, _MOST_OF_LOOP)
    return None if found is None else (found, found.seconds / root.seconds)


def loop_function(facts: RuleInputs) -> tuple[str, float] | None:
    """Return file and line that take most of the training loop's own code, in the most specific
    function, and the share (0 to 1) of that code that the function takes;

    None: too few samples show it.
    """
    code, root = facts.code, _loop_code(facts)
    if code is None or root is None:
        return None
    node, _ = deepest(root, code.source)
    if node is None:
        return None
    taken_s = node.lines[node.line] if node.key == code.loop else node.seconds
    return node.place, taken_s / root.seconds


def _loop_code(facts: RuleInputs) -> CodeNode | None:
    """What the training loop does between models, backward passes and updates, without making
    batches; None: too few samples show it.
    """
    code = facts.code
    if code is None:
        return None
    trees = [code.places[key] for key in _LOOP if key in code.places]
    root = CodeNode(("", ""))
    for tree in trees:
        for node in tree.root.without(_makers(facts)).calls.values():
            root.seconds += node.seconds
            before = root.calls.get(node.key)
            root.calls[node.key] = node if before is None else before.joined(node)
    number = sum(tree.weight.number for tree in trees)
    return root if number >= FEWEST and root.seconds > 0 else None


def _makers(facts: RuleInputs) -> frozenset[str]:
    """Names of functions that make batches in the training's own thread."""
    made = facts.making.functions if facts.making is not None else ()
    return frozenset(name.partition(" (")[0].rpartition(".")[2] for name in made)


def batch_maker(facts: RuleInputs) -> tuple[str, CallFound | None] | None:
    """Return file and line of the function that makes batches in the training's own thread, where
    it takes most, and a known slow call there; None: too few samples show it.
    """
    code, names = facts.code, _makers(facts)
    if code is None or not names:
        return None
    nodes = [
        node
        for tree in (code.places[key] for key in _LOOP if key in code.places)
        for node in tree.root.under()
        if node.function in names
    ]
    node = max(nodes, key=lambda other: other.seconds, default=None)
    if node is None:
        return None
    above = CodeNode(("", ""), node.seconds, calls={node.key: node})
    innermost, _ = deepest(above, code.source)
    known = known_call(node, PER_SAMPLE, code.source)
    return (innermost or node).place, known
