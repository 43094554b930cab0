"""Memory grows with every step, so that a longer training runs out of it."""

from dataclasses import dataclass

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import Finding, Refused, Severity, measured
from feedline.analysis.ledger.rule import Rule
from feedline.analysis.ledger.view.enough_steps import growing, grows
from feedline.analysis.ledger.view.model_code import files_of, line_with
from feedline.analysis.measure.code_places import BACKWARD
from feedline.analysis.measure.growing_lines import line_of_hooks, line_of_updates
from feedline.analysis.measure.model import Holder, MemoryGrowth
from feedline.analysis.text.sentences import COUNT, PART, SIZE, TIME, Sentence

_RULE_ID = "memory_growth"

_SAYS = Sentence("{who} by {growth} {each}{until}", who=PART, growth=SIZE, each=PART, until=PART)
_GRAPHS_KEPT = Sentence(
    "each step's graph is kept, {growth} {each}{until}", growth=SIZE, each=PART, until=PART
)
_EACH = {"": "per step", "epoch": "in each epoch", "evaluation": "in each evaluation"}
_EVERY = Sentence("every {steps} steps", steps=COUNT)
_UNTIL = Sentence(", and host memory lasts another {left}", left=TIME)
_LASTS = Sentence(": host memory may last another {left}", left=TIME)
_GREW = Sentence("while these steps ran it grew by {grown}, to {end}", grown=SIZE, end=SIZE)
_GRAPHS = Sentence(
    "of {graphs} graphs of past steps that were looked at, {alive} are still in memory",
    graphs=COUNT,
    alive=COUNT,
)
_NO_GRAPHS = "graphs of past steps are not what it keeps"
_UNKNOWN = "what holds the memory is not known"
_OBJECTS = Sentence(
    "{objects} new Python objects stay {each}, as in dicts, lists and strings",
    objects=COUNT,
    each=PART,
)
_PIECES = "few Python objects come with it: it is held by large pieces, such as tensors or arrays"
_CACHE = "if the program fills a cache, it stops when that is full"
_COPIES = (
    "workers copy pages that they share with the main process when they read its Python objects"
)
_AT_MOST = Sentence("at most {shared} are left to be copied", shared=SIZE)
_OWN = "workers do not copy what they share: they keep something of their own"
_CHAINED = "so each graph leads to that of the step before, by a tensor that goes from step to step"
_DETACH_STATE = "Detach what goes from one step to the next, such as state = state.detach()."
_DETACH = "Keep loss.item() instead of the loss, and x.detach() of other tensors."
_LOOK = "Look for lists, dicts and caches that get longer with each step."
_LOOK_FOR_TENSORS = (
    "Find what keeps tensors or arrays from step to step, such as a list of losses or outputs."
)
_ONE_OF_THEM = Sentence(
    "Look at {places}: one of these lines adds to what nothing around it empties.", places=PART
)
_LOOK_AT_IT = "Look at what this line adds to: nothing around it empties it."
_SNAPSHOT = "To find it, compare two tracemalloc snapshots of a short run: they slow it down."
_TENSORS = "Tracemalloc shows arrays, but not tensors: compare those in gc.get_objects() instead."
_ARRAYS = "Keep what samples need in arrays (NumPy, torch, Arrow) instead of lists and dicts."
_LOOK_IN_DATASET = (
    "Look in the dataset for lists, dicts and caches that get longer with each sample."
)

_CYCLE = "itertools.cycle keeps every batch, to give it out again"
_LOOP_AGAIN = "Go through the loader in a loop of its own (while True: yield from loader)."
_CYCLED = r"(\bitertools\.|(?<![\w.]))cycle\((iter\()?\w*(load|batch|data|train|iter)\w*"
_IMPORTED = r"\bimport itertools\b|from itertools import .*\bcycle\b"
_CIRCLE = "backward(create_graph=True) makes parameters and their gradients keep each other"
_GRAD = "Use torch.autograd.grad(..., create_graph=True), or set gradients to None after the step."
_CREATES = r"\.backward\(.*\bcreate_graph\s*=\s*True"

_HOOK = "a hook adds to what outlives it, and nothing in its file empties that"
_REMOVE = "Remove hooks once they are no longer needed (handle.remove()), or empty what they fill."

_UPDATED = "an object of another module is given tensors in each step, and the file never resets it"
_RESET = "If it keeps them, reset it once per epoch, such as metric.reset()."

_OPEN = Sentence(
    "{figures} figures are open: pyplot keeps each of them until it is closed", figures=COUNT
)
_CLOSE = "Close each figure once it is saved: pyplot.close(figure)."
_MAKES_FIGURE = r"\b(py)?pl(o?)t\.(figure|subplots?|subplot_mosaic|subplot2grid)\("

#: Trainings last hours, rarely more than some days.
_SOON_S, _LATEST_S = 24 * 3600.0, 30 * 24 * 3600.0
_LONG_STEPS = 1000  # that it went on for: a cache of that many batches is not usual
_WHO = {"main": "the main process grows", "workers": "the loader's workers grow"}


def _check(facts: RuleInputs) -> Finding | None:
    """Tell of the growth that reaches the limit first."""
    sure = [one for one in facts.growth if one.seconds_left is not None and _is_sure(facts, one)]
    # all of them reach the limit together
    grown = max(sure, key=lambda one: one.per_step_bytes, default=None)
    if grown is None or (grown.seconds_left or 0.0) > _LATEST_S:
        return None
    known = _known_line(facts, grown)
    endless = known is not None or _is_endless(facts, grown)
    fix, *others = [known.fix] if known else _fixes(facts, grown)
    return Finding(
        _RULE_ID,
        _severity(grown, endless),
        message=_says(grown, endless),
        more=[
            _GREW(grown=grown.grown_bytes, end=grown.at_end_bytes),
            *(_holds(grown) if known is None or grown.holder is Holder.GRAPHS else []),
            *([known.says] if known else []),
            *growing(facts, BACKWARD, "the backward pass"),
            *([_CHAINED] if _is_chained(facts, grown) else []),
        ],
        evidence=measured(
            (
                ("growth_bytes", "growth per step", grown.per_step_bytes, "B"),
                ("growth_low", "lower end of its 95 % interval", grown.low_bytes, "B"),
                ("growth_high", "upper end", grown.high_bytes, "B"),
                ("grown_bytes", "growth while these steps ran", grown.grown_bytes, "B"),
                ("left_bytes", "left until the limit", grown.left_bytes, "B"),
                ("steps_left", "steps until the limit", grown.steps_left, "steps"),
                ("seconds_left", "time until the limit", grown.seconds_left, "s"),
                ("every_steps", "steps from one jump to the next", grown.every_steps, "steps"),
                ("at_end_bytes", "memory when the steps ended", grown.at_end_bytes, "B"),
                ("shared_bytes", "what workers still share", grown.still_shared_bytes, "B"),
                ("graphs", "graphs of past steps", float(grown.graphs) or None, "graphs"),
                ("graphs_alive", "of them in memory", _alive(grown), "graphs"),
                ("new_objects", "new Python objects in a step", grown.new_objects, "objects"),
                ("figures", "figures that are open", grown.figures, "figures"),
            )
        ),
        fix=fix,
        fix_more=others,
        place=known.place
        if known
        else grown.place or (facts.step.evaluation_place if grown.at == "evaluation" else ""),
        how_to_check=_how_to_check(grown),
        gives="memory stops growing",
    )


@dataclass(frozen=True)
class _Line:
    """A line of the program that is known to make memory grow."""

    place: str
    says: str
    fix: str


def _known_line(facts: RuleInputs, grown: MemoryGrowth) -> _Line | None:
    """Return the line of a known cause that fits what grows; None: none is found."""
    if facts.code is None or grown.who != "main":
        return None
    source = facts.code.source
    if grown.holder is Holder.GRAPHS:
        place = line_with(facts.code, _CREATES) if not grown.place else ""
        return _Line(place, _CIRCLE, _GRAD) if place else None
    if grown.figures:
        place = line_with(facts.code, _MAKES_FIGURE)
        return _Line(place, _OPEN(figures=round(grown.figures)), _CLOSE) if place else None
    if grown.place:
        return None
    if _may_be_batches(grown) and line_with(facts.code, _IMPORTED):
        place = line_with(facts.code, _CYCLED)
        if place:
            return _Line(place, _CYCLE, _LOOP_AGAIN)
    hooks = [place for file in files_of(facts.code) if (place := line_of_hooks(file, source))]
    if len(hooks) == 1:
        return _Line(hooks[0], _HOOK, _REMOVE)
    if grown.holder is not Holder.PIECES:
        return None
    fed = [place for file in files_of(facts.code) if (place := line_of_updates(file, source))]
    return _Line(fed[0], _UPDATED, _RESET) if len(fed) == 1 else None


def _may_be_batches(grown: MemoryGrowth) -> bool:
    """Tell whether batches may be what is kept: tensors that come with the steps."""
    return grown.holder in (None, Holder.PIECES) and not grown.at


def _says(grown: MemoryGrowth, endless: bool) -> str:
    growth, each, until = grown.per_step_bytes * _steps(grown), _each(grown), _until(grown, endless)
    if grown.holder is Holder.GRAPHS:
        return _GRAPHS_KEPT(growth=growth, each=each, until=until)
    return _SAYS(who=_WHO[grown.who], growth=growth, each=each, until=until)


def _steps(grown: MemoryGrowth) -> float:
    """Return the steps from one jump to the next; 1: it grows in each."""
    return grown.every_steps or 1.0


def _each(grown: MemoryGrowth) -> str:
    if grown.every_steps is not None and not grown.at:
        return _EVERY(steps=_rounded(grown.every_steps))
    return _EACH[grown.at]


def _alive(grown: MemoryGrowth) -> float | None:
    return float(grown.graphs_alive) if grown.graphs else None


def _until(grown: MemoryGrowth, endless: bool) -> str:
    if grown.steps_left is None or grown.seconds_left is None or _comes_to_an_end(grown):
        return ""
    return (_UNTIL if endless else _LASTS)(left=grown.seconds_left)


def _comes_to_an_end(grown: MemoryGrowth) -> bool:
    """Tell whether everything is copied before the limit is reached."""
    fits = (grown.still_shared_bytes or 0.0) < (grown.left_bytes or 0.0)
    return grown.holder is Holder.COPIES and fits


def _rounded(steps: float) -> int:
    """Return a number with two digits that count."""
    return int(float(f"{max(steps, 1.0):.1e}"))


def _severity(grown: MemoryGrowth, endless: bool) -> Severity:
    """Return high for a training that runs out within a day."""
    late = (grown.seconds_left or 0.0) > _SOON_S
    return Severity.LOW if late or not endless or _comes_to_an_end(grown) else Severity.HIGH


def _is_sure(facts: RuleInputs, grown: MemoryGrowth) -> bool:
    """Tell whether it is surely neither a cache of the first pass nor an allocator's warming up."""
    return _outlasts_a_pass(facts, grown) or facts.throughput.steps >= _LONG_STEPS


def _outlasts_a_pass(facts: RuleInputs, grown: MemoryGrowth) -> bool:
    shown = grown.holder in (Holder.GRAPHS, Holder.COPIES) or grown.at != ""
    return shown or facts.epochs > 1


def _is_endless(facts: RuleInputs, grown: MemoryGrowth) -> bool:
    """Tell whether it surely goes on: without a loader it may be a buffer of replays otherwise."""
    named = grown.place != "" or bool(grown.places)
    return _outlasts_a_pass(facts, grown) or named or facts.loader is not None


def _holds(grown: MemoryGrowth) -> list[str]:
    if grown.holder is Holder.GRAPHS:
        return [_GRAPHS(graphs=grown.graphs, alive=grown.graphs_alive)]
    if grown.holder is Holder.COPIES:
        return [_COPIES, _AT_MOST(shared=grown.still_shared_bytes or 0.0)]
    if grown.holder is Holder.OWN:
        return [_OWN, _CACHE]
    no_graphs = [_NO_GRAPHS] if grown.graphs else []
    if grown.holder is Holder.OBJECTS:
        objects = _rounded((grown.new_objects or 0.0) * _steps(grown))
        return [*no_graphs, _OBJECTS(objects=objects, each=_each(grown)), _CACHE]
    return [*no_graphs, _PIECES if grown.holder is Holder.PIECES else _UNKNOWN, _CACHE]


def _is_chained(facts: RuleInputs, grown: MemoryGrowth) -> bool:
    """Tell whether each backward pass goes through the graphs of the steps before."""
    return grown.holder is Holder.GRAPHS and grows(facts, BACKWARD) is not None


def _fixes(facts: RuleInputs, grown: MemoryGrowth) -> list[str]:
    if grown.holder is Holder.GRAPHS:
        return [_DETACH_STATE, _DETACH] if _is_chained(facts, grown) else [_DETACH]
    if grown.holder is Holder.COPIES:
        return [_ARRAYS]
    if grown.place:
        return [_LOOK_AT_IT, _TENSORS if grown.holder is Holder.PIECES else _SNAPSHOT]
    if grown.places:
        first, last = ", ".join(grown.places[:-1]), grown.places[-1]
        compared = _TENSORS if grown.holder is Holder.PIECES else _SNAPSHOT
        return [_ONE_OF_THEM(places=f"{first} and {last}"), compared]
    if grown.holder is Holder.PIECES:
        return [_LOOK_FOR_TENSORS, _TENSORS]
    return [_LOOK_IN_DATASET if grown.who == "workers" else _LOOK, _SNAPSHOT]


def _how_to_check(grown: MemoryGrowth) -> str:
    if grown.holder is Holder.GRAPHS:
        return (
            "Train without keeping tensors of past steps. If memory grows as fast, this finding is "
            "wrong."
        )
    if grown.holder is Holder.COPIES:
        return (
            "Read the same from one array, with the same workers. If they grow as fast, this "
            "finding is wrong."
        )
    return "Record twice as many steps. If memory is no larger at the end, this finding is wrong."


def _change(facts: RuleInputs) -> Refused:
    """Refuse to predict: it takes no time until memory is full."""
    return Refused("memory", "Growing memory takes no time until there is none left.")


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    bound="Running out of memory",
    in_part=False,
    lifts=frozenset(),
    ends_training=True,
    action="keep less memory",
)
