"""The line of the program at which most of the step is spent, from sampled stacks.

A line takes what the libraries take that it calls, but not what other functions of the program do.
Every training has such a line: it is where to look, and no fault.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import SHARE, Evidence
from feedline.analysis.ledger.view.slow_code import FEWEST, enough
from feedline.analysis.measure.code_frames import origin
from feedline.analysis.measure.code_node import Key, add_to, share_of
from feedline.analysis.measure.code_places import (
    BACKWARD,
    EVALUATION,
    FORWARD,
    GRADIENTS,
    INPUT,
    LOSS,
    OPTIMIZER,
    OTHER,
)
from feedline.analysis.measure.code_tree import MAIN, PlaceTree
from feedline.analysis.measure.user_code import main_weight
from feedline.analysis.text.sentences import FUNCTION, NAME, Sentence

#: Of the step, at the lower end of the interval: a line that takes less says little of it.
_LEAST = 0.1
_SURELY_MOST = 0.5
#: Stages that a place's samples stand for: a loss that is a module of the program's own stands in
#: forward.
_STAGES = {
    FORWARD: (FORWARD, LOSS),
    LOSS: (LOSS,),
    BACKWARD: (BACKWARD,),
    GRADIENTS: (GRADIENTS,),
    OPTIMIZER: (OPTIMIZER,),
    INPUT: (INPUT,),
    OTHER: (OTHER,),
}
#: Of a forward pass: with less of it in functions of the program, the model is a library's.
_OWN_MODEL = 0.5
#: Libraries with models in them, whose lines count where the model is one of theirs.
_OF_MODELS = frozenset(
    ("torchvision", "torchaudio", "timm", "transformers", "monai", "diffusers", "torch_geometric")
)

_IN = Sentence("in {function} at {place}", function=FUNCTION, place=NAME)
_AT = Sentence("at {place}", place=NAME)

#: A line, and the function that it is in.
_At = tuple[Key, int]


@dataclass(frozen=True)
class HotLine:
    """A line that takes much of the step.

    Attributes:
        function: that it is in; empty: in none.
        place: its file and number, ``model.py:31``.
        share, low: of the step that it takes (0 to 1), and the lower end of the 95 % interval.
        seconds: of the mean step.
    """

    function: str
    place: str
    share: float
    low: float
    seconds: float

    @property
    def where(self) -> str:
        """``in attention() at model.py:31``."""
        if not self.function:
            return _AT(place=self.place)
        return _IN(function=self.function, place=self.place)

    @property
    def evidence(self) -> list[Evidence]:
        """Its share of the step and the lower end of that, and its seconds."""
        what = f"spent at {self.place}"
        return [
            Evidence("line_share", f"{what}, share of the step", self.share, SHARE, self.place),
            Evidence("line_share_end", "lower end of its 95 % interval", self.low, SHARE, "lower"),
            Evidence("line_s", f"{what}, per step", self.seconds, "s", self.place),
        ]


def hottest_line(facts: RuleInputs) -> HotLine | None:
    """Return the line at which most of the step is spent.

    None: stacks were not sampled, none surely takes a tenth of the step, or a GPU computes, while
    the host only launches its work.
    """
    code = facts.code
    if code is None or facts.on_gpu:
        return None
    steps = main_weight(code, EVALUATION)
    lines = [
        line
        for place, stages in _STAGES.items()
        if (tree := code.places.get((MAIN, place))) is not None and tree.weight.seconds
        for line in _of_place(facts, tree, stages, tree.weight.seconds / steps.seconds)
    ]
    hottest = max(lines, key=lambda line: line.share, default=None)
    return hottest if hottest is not None and hottest.low >= _LEAST else None


def hottest_of_evaluation(facts: RuleInputs) -> HotLine | None:
    """Return the line at which most of evaluation is spent; its share is of that, its seconds too.

    Where no line is, that of the innermost function in which most of it surely is. None: stacks
    were not sampled, or none surely takes a tenth of it, or a GPU computes.
    """
    code = facts.code
    tree = code.places.get((MAIN, EVALUATION)) if code is not None else None
    if tree is None or facts.on_gpu:
        return None
    lines = _lines(tree, 1.0, facts.step.evaluating_s)
    hottest = max(lines, key=lambda line: line.share, default=None)
    if hottest is not None and hottest.low >= _LEAST:
        return hottest
    return _function_with_most(tree, facts.step.evaluating_s)


def _function_with_most(tree: PlaceTree, whole_s: float) -> HotLine | None:
    """Return the line of a function that takes most of a place, with all that it calls."""
    found: HotLine | None = None
    candidates = list(tree.inside.calls.values())
    while candidates:
        node = max(candidates, key=lambda one: one.seconds)
        part, low, _ = share_of(node.seconds, tree.weight)
        if low < _SURELY_MOST or not enough(node.seconds, tree.weight):
            break
        place = f"{_shown(node.file)}:{node.line}"
        found = HotLine(node.function, place, part, low, part * whole_s)
        candidates = list(node.calls.values())
    return found


def _of_place(
    facts: RuleInputs, tree: PlaceTree, stages: tuple[str, ...], sampled: float
) -> Iterator[HotLine]:
    """Lines of a place.

    Args:
        sampled: share (0 to 1) of the samples of steps that are in the place. What its stages take
            of the step is measured as well: the smaller of both counts.
    """
    recorded_s = sum(facts.step.stages.get(stage, 0.0) for stage in stages)
    return _lines(tree, min(sampled, recorded_s / facts.step.mean_s), facts.step.mean_s)


def _lines(tree: PlaceTree, whole: float, whole_s: float) -> Iterator[HotLine]:
    """Lines of a place that takes a share (0 to 1) of what takes ``whole_s`` seconds."""
    for (key, line), seconds in _spent(tree).items():
        part, low, _ = share_of(seconds, tree.weight)
        if part * tree.weight.number < FEWEST:
            continue
        share = whole * part
        yield HotLine(
            "" if " " in key[1] or "<" in key[1] else key[1],
            f"{_shown(key[0])}:{line}",
            share,
            whole * low,
            share * whole_s,
        )


def _spent(tree: PlaceTree) -> dict[_At, float]:
    """Return line -> seconds, without those of other functions of the program that it calls."""
    spent: dict[_At, float] = {}
    for node in tree.inside.under():
        for line, seconds in node.own_lines().items():
            add_to(spent, (node.key, line), seconds)
    if tree.place == FORWARD and tree.inside.seconds < _OWN_MODEL * tree.weight.seconds:
        for at, seconds in _of_library(tree):
            add_to(spent, at, seconds)
    return spent


def _of_library(tree: PlaceTree) -> Iterator[tuple[_At, float]]:
    """(line, seconds) in the innermost function of a library with models, such as timm.

    Only where no function of the program is inside of the place.
    """
    outside = [node for key, node in tree.root.calls.items() if key not in tree.inside.calls]
    chains = (
        chain
        for node in outside
        for below in node.under()
        for of_line in below.below.values()
        for chain in of_line.items()
    )
    for chain, seconds in chains:
        inner = [frame for frame in chain if origin(frame.file).owner in _OF_MODELS]
        if inner:
            name = inner[-1].function.rpartition(".")[2]
            yield ((inner[-1].file, name), inner[-1].line), seconds


def _shown(file: str) -> str:
    """``timm/models/resnet.py`` of a library's file; a file of the program as it is."""
    whose = origin(file)
    return f"{whose.owner}/{whose.tail}" if whose.owner else file
