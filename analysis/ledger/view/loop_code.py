"""The training loop's own code, and what makes batches in it, from sampled stacks."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from feedline.analysis.ledger.calls_per_sample import PER_SAMPLE
from feedline.analysis.ledger.calls_per_step import AFTER_BACKWARD, ONE_BY_ONE, PER_STEP, REDUCED
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.known_call import CallFound, Calls, KnownCall, known_call, of_frames
from feedline.analysis.ledger.view.input_wait import MIN_WAIT_SHARE
from feedline.analysis.ledger.view.own_functions import name_of, place_of
from feedline.analysis.ledger.view.slow_code import FEWEST, deepest, enough
from feedline.analysis.measure.code_places import INPUT, LOGGING, OTHER, origin
from feedline.analysis.measure.code_tree import MAIN, CodeNode
from feedline.analysis.measure.step_model import OwnFunction
from feedline.profiler.store.sampled_stacks import StackFrame

#: Places in which the loop does neither forward nor backward, nor anything else of torch's.
_LOOP = ((MAIN, OTHER), (MAIN, LOGGING))
#: Places in which batches are made without a loader: where a library's function makes them, the
#: loop's lines call it.
_MADE = ((MAIN, INPUT), *_LOOP)
#: Of the loop's own code: a known call that takes this much of it is told.
_MOST_OF_LOOP = 1 / 3
_SHORTENED = re.compile(r"(?P<function>.*) \((?P<file>[^()]+):(?P<line>\d+)\)")
_OF_LIBRARY = re.compile(r"(?P<owner>\w+)…/(?P<rest>.*)")
_SMALLEST_BYTES = 2  # of a gradient's element
_FEW = 2.5  # calls in a step: more are one for each tensor or so
HOW_TO_CHECK = (
    "Use one batch, made before the loop, in every step. If the step is no faster, "
    "this finding is wrong."
)
#: A function that has a CPU, or wants one, less of its time than this waits for its batch rather
#: than makes it.
_MIN_WORKING_SHARE = 0.5
_TOLD = 0.01  # of the step
#: Functions of Python's own that give out what another thread or process has made.
_HANDS_OVER = (
    r"\bget(_nowait)? \(python3\.\d+/(queue|multiprocessing/queues)\.py"
    r"|\bresult \(python3\.\d+/concurrent/futures/"
    r"|\b(get|next) \(python3\.\d+/multiprocessing/pool\.py"
    r"|\brecv \(python3\.\d+/multiprocessing/connection\.py"
)


@dataclass(frozen=True)
class LoopCall:
    """A known slow call in the training loop.

    Attributes:
        place: file and line that make it.
        share: of the loop's own code that it takes, from 0 to 1.
    """

    call: KnownCall
    place: str
    share: float


def known_in_loop(facts: RuleInputs, named: Sequence[OwnFunction]) -> LoopCall | None:
    """Return the known slow call that takes most of the loop's own code; None: there is none.

    It is known from sampled stacks, or from what the loop's functions were seen to call.

    Args:
        named: the functions that were timed, longest first.
    """
    own = facts.step.own_code
    if found := loop_call(facts):
        return LoopCall(found[0].call, f"{found[0].file}:{found[0].line}", found[1])
    if own is None or not own.s > 0:
        return None
    for one in named:
        frame = _frame_of(one.mainly) if one.s >= _MOST_OF_LOOP * own.s else None
        call = of_frames(_calls(facts), (frame,)) if frame is not None else None
        if call is not None and not call.needs_source:
            return LoopCall(
                _as_reduced(facts, call),
                line_in(facts, one.name) or place_of(one.name),
                one.s / own.s,
            )
    return None


def known_in_function(facts: RuleInputs, function: str) -> KnownCall | None:
    """Return the known slow call that takes most of a function of the loop; None: there is none."""
    code = facts.code
    if code is None or not function:
        return None
    trees = [code.places[key] for key in _LOOP if key in code.places]
    nodes = [node for tree in trees for node in tree.root.under() if node.function == function]
    found = (known_call(node, _calls(facts), code.source) for node in nodes)
    return next((one.call for one in found if one is not None), None)


def line_in(facts: RuleInputs, name: str) -> str:
    """Return file and line that take most of a function that was timed; empty: no sample shows it.

    Args:
        name: ``project (train.py:20)``.
    """
    function = name.partition(" (")[0].rpartition(".")[2]
    trees = (
        [facts.code.places[key] for key in _LOOP if key in facts.code.places] if facts.code else []
    )
    nodes = [node for tree in trees for node in tree.root.under() if node.function == function]
    return max(nodes, key=lambda node: node.seconds).place if nodes else ""


def _frame_of(name: str) -> StackFrame | None:
    """Return the frame of a library's function, as names of timed functions have it.

    ``deepcopy (python3.11/copy.py:128)``.
    """
    match = _SHORTENED.fullmatch(name)
    if match is None:
        return None
    file = _OF_LIBRARY.sub(r"site-packages/\g<owner>/\g<rest>", match["file"])
    return StackFrame(file, int(match["line"]), match["function"])


def _calls(facts: RuleInputs) -> Calls:
    return tuple(call for call in PER_STEP if facts.on_gpu or not call.on_gpu)


def loop_call(facts: RuleInputs) -> tuple[CallFound, float] | None:
    """Return the known slow call that takes most of the loop's own code, and its share (0 to 1).

    None: there is none, or stacks were not sampled.
    """
    code, root = facts.code, _loop_code(facts)
    if code is None or root is None:
        return None
    found = known_call(root, _calls(facts), code.source, _MOST_OF_LOOP)
    if found is None:
        return None
    return replace(found, call=_as_reduced(facts, found.call)), found.seconds / root.seconds


def loop_function(facts: RuleInputs) -> tuple[str, float] | None:
    """Return file and line that take most of the loop's own code, and the function's share of it.

    It is the most specific function; the share goes from 0 to 1. None: too few samples show it.
    """
    code, root = facts.code, _loop_code(facts)
    if code is None or root is None:
        return None
    node, _ = deepest(root, code.source)
    if node is None:
        return None
    taken_s = node.lines[node.line] if node.key == code.loop else node.seconds
    return node.place, taken_s / root.seconds


def line_of_stage(facts: RuleInputs, place: str) -> str:
    """Return file and line of the program that take most of what the main process does in a place.

    Empty: too few samples show it, or stacks were not sampled.
    """
    code = facts.code
    tree = code.places.get((MAIN, place)) if code is not None else None
    if code is None or tree is None:
        return ""
    node, _ = deepest(tree.root, code.source)
    if node is None or tree.weight.number < FEWEST and not enough(node.seconds, tree.weight):
        return ""
    return node.place


def _loop_code(facts: RuleInputs) -> CodeNode | None:
    """Return what the training loop does itself, without making batches.

    It is what lies between models, backward passes and updates. None: too few samples show it.
    """
    code = facts.code
    if code is None:
        return None
    trees = [code.places[key] for key in _LOOP if key in code.places]
    root = CodeNode(("", ""))
    for tree in trees:
        for node in tree.root.without(_told_apart(facts)).calls.values():
            root.seconds += node.seconds
            before = root.calls.get(node.key)
            root.calls[node.key] = node if before is None else before.joined(node)
    number = sum(tree.weight.number for tree in trees)
    return root if number >= FEWEST and root.seconds > 0 else None


def _told_apart(facts: RuleInputs) -> frozenset[str]:
    """Names of functions that other findings tell of: those that make batches, or run in every nth step.

    The loop's own function is not among them.
    """
    stall = facts.step.periodic
    loop = facts.code.loop if facts.code is not None else None
    if stall is None or not stall.function or loop is not None and stall.function == loop[1]:
        return _makers(facts)
    return _makers(facts) | {stall.function}


def _makers(facts: RuleInputs) -> frozenset[str]:
    """Names of functions that make batches in the training's own thread."""
    return facts.making.names if facts.making is not None else frozenset()


def maker_share(facts: RuleInputs, known: CallFound) -> float:
    """Return the share (0 to 1) that a known call takes of making batches in the training's thread."""
    code, names = facts.code, _makers(facts)
    trees = [code.places[key] for key in _MADE if key in code.places] if code is not None else []
    whole = sum(
        node.seconds for tree in trees for node in tree.root.under() if node.function in names
    )
    return min(1.0, known.seconds / whole) if whole else 0.0


def _calling(facts: RuleInputs) -> str:
    """Return file and line of the program that call a library's function which gives out batches.

    Empty: no sample shows it.
    """
    code, made = facts.code, facts.making.functions if facts.making is not None else ()
    frames = {frame for name in made if (frame := _frame_of(name)) is not None}
    named = {(origin(frame.file), frame.function.rpartition(".")[2]) for frame in frames}
    lines: dict[str, float] = {}
    trees = [code.places[key] for key in _MADE if key in code.places] if code is not None else []
    for node in (node for tree in trees for node in tree.root.under()):
        for line, chains in node.below.items():
            for chain, seconds in chains.items():
                first = chain[0] if chain else None
                if (
                    first is not None
                    and (origin(first.file), first.function.rpartition(".")[2]) in named
                ):
                    place = f"{node.file}:{line}"
                    lines[place] = lines.get(place, 0.0) + seconds
    return max(lines, key=lambda place: lines[place], default="")


def batch_maker(facts: RuleInputs) -> tuple[str, CallFound | None] | None:
    """Return file and line of the function that makes batches in the training's own thread.

    Where it takes most, and a known slow call there; None: too few samples show it.
    """
    code, names = facts.code, _makers(facts)
    if code is None or not names:
        return None
    nodes = [
        node
        for tree in (code.places[key] for key in _MADE if key in code.places)
        for node in tree.root.under()
        if node.function in names
    ]
    node = max(nodes, key=lambda other: other.seconds, default=None)
    if node is None:
        place = _calling(facts)
        return (place, None) if place else None
    above = CodeNode(("", ""), node.seconds, calls={node.key: node})
    innermost, _ = deepest(above, code.source)
    known = known_call(node, PER_SAMPLE, code.source)
    return (innermost or node).place, known


def _as_reduced(facts: RuleInputs, call: KnownCall) -> KnownCall:
    """Return a known call with what is true of gradients, if it reduces these; else the call."""
    calls = _of_gradients(facts) if call is REDUCED else 0.0
    if not calls:
        return call
    return ONE_BY_ONE if calls > _FEW else AFTER_BACKWARD


def _of_gradients(facts: RuleInputs) -> float:
    """Return the calls per step that reduce gradients outside of the backward pass; 0.0: none do.

    All values that the loop reduces are rarely as many as the parameters; where a wrapper reduces
    gradients, the backward pass is seen to call it.
    """
    # kinds count what was kept of a run that forgot windows, as these steps do
    comm, updated, steps = facts.comm, facts.updated, facts.throughput.steps_in_detail
    if comm is None or updated is None or not steps:
        return 0.0
    if any(kind.phase == "backward" for kind in facts.exposed):
        return 0.0
    kinds = [kind for kind in comm.collectives if kind.name == "all_reduce"]
    nbytes = sum(kind.bytes * kind.count for kind in kinds) / steps
    if nbytes < _SMALLEST_BYTES * updated.elements:
        return 0.0
    return sum(kind.count for kind in kinds) / steps


def _who(facts: RuleInputs) -> str:
    """Return ``get_batch (train.py:116)``."""
    return " and ".join(facts.making.functions) if facts.making else "the program's stage 'input'"


def names(facts: RuleInputs) -> str:
    """``get_batch``: the functions without their places."""
    return " and ".join(map(name_of, facts.making.functions)) if facts.making else _who(facts)


def places(facts: RuleInputs) -> str:
    """``train.py:116``: where these functions are."""
    of = map(place_of, facts.making.functions) if facts.making else ()
    return ", ".join(filter(None, of))


def makes(facts: RuleInputs) -> list[str]:
    """Return the same sentence where it is worth one.

    What takes next to nothing may only give out what is in memory, as a property does.
    """
    took = facts.step.stages.get("input", 0.0)
    return [says(facts)] if took >= _TOLD * facts.step.mean_s else []


def says(facts: RuleInputs) -> str:
    """``get_batch at train.py:116 makes each batch``."""
    functions = facts.making.functions if facts.making else ()
    at = " and ".join(
        " at ".join(filter(None, (name_of(function), place_of(function)))) for function in functions
    )
    return f"{at or _who(facts)} {does(facts)}"


def only_waits(facts: RuleInputs) -> bool:
    """Tell whether the function waits for a batch that another thread or process makes."""
    making = facts.making
    if making is None:
        return False
    handed = all(re.search(_HANDS_OVER, function) for function in making.functions)
    return handed or making.working_share < _MIN_WORKING_SHARE


def does(facts: RuleInputs) -> str:
    """Return what the function does: ``makes each batch``, ``waits for each batch``."""
    verb = ("wait" if only_waits(facts) else "make") + (
        "" if facts.making and len(facts.making.functions) > 1 else "s"
    )
    return f"{verb} for each batch" if only_waits(facts) else f"{verb} each batch"


def sure_of_the_rest(facts: RuleInputs) -> bool:
    """Tell whether no other part of the step can be input.

    Such a part is what made the arrays that a function makes tensors of.
    """
    little = facts.step.stages.get("other", 0.0) < MIN_WAIT_SHARE * facts.step.mean_s
    return facts.making is None or little or (facts.unseen is not None and facts.unseen.resident)
