"""Functions of the program's own code, in words."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import SHARE, Evidence
from feedline.analysis.ledger.view.handover import FREEING_S_PER_BYTE, shared_bytes
from feedline.analysis.ledger.view.input_wait import num_workers
from feedline.analysis.ledger.view.slow_code import FEWEST, enough
from feedline.analysis.measure.code_places import (
    BACKWARD,
    EVALUATION,
    FORWARD,
    GRADIENTS,
    INPUT,
    LOSS,
    OPTIMIZER,
    OTHER,
    origin,
)
from feedline.analysis.measure.code_tree import MAIN, Key, PlaceTree, add_to, share_of
from feedline.analysis.measure.step_model import OwnCode, OwnFunction, StepSummary
from feedline.analysis.measure.user_code import main_weight
from feedline.analysis.text.formatting import called
from feedline.analysis.text.sentences import FUNCTION, NAME, PART, TIME, Sentence

#: Functions and lines below this share of the step are not named.
NAMED_SHARE = 0.03
NAMED = 3

_LONG_NAME = 19  # letters, beside "speed up" in a list of changes

_TAKES = Sentence("{function} takes {took}{when}", function=NAME, took=TIME, when=PART)
_TAKE = Sentence("{function} take {took}{when}", function=NAME, took=TIME, when=PART)
_MOSTLY = Sentence("most of that is spent in {function}", function=NAME)

_WITH_PLACE = re.compile(r"(?P<name>.+) \((?P<place>[^()]+)\)")
_LINES = re.compile(r"(?:(?:the )?loop (?:from|around) )?lines? (?P<first>\d+).*")
#: Of the step, all of it: below, something else is worth more, unless one function alone surely
#: takes _MIN_NAMED.
_MIN_SHARE = 0.20
#: What is named takes this share of the step, at least: the rest may be what torch does around the
#: calls that feedline records.
_MIN_NAMED = 0.05
#: A batch in shared memory that takes milliseconds to free.
_LARGE_BYTES = 8e6
#: Of all steps together: what feedline does once, such as counting operations, is a good part of a
#: shorter training.
_MIN_TRAINING_S = 1.0
#: Of a shorter step, a good part is what recording it costs, and how much is not known well enough.
_SHORT_S = 0.002
#: Of what recording a step in full takes, which is subtracted: less than this may be left of it. Of
#: loops that only train, lines between the calls that feedline records kept up to 0.48 of it; of
#: loops with slow code, 0.72 and more (benchmarks/public_reports, --third, and slow_calls).
_OF_RECORDING = 0.5
_HARDLY = 0.05  # of a function's time: too little to subtract; verdict and table then agree
_MOST_OF_IT = 0.5  # of a function's time, in the steps that take longer: all of it is theirs
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


def name_of(function: str) -> str:
    """``get_batch`` of ``get_batch (train.py:116)``.

    Lines keep their file, which they mean nothing without.
    """
    at = _WITH_PLACE.fullmatch(function)
    return at["name"] if at and not _LINES.fullmatch(at["name"]) else function


def is_lines(function: str) -> bool:
    """Tell whether it is lines of the training loop itself rather than a function that it calls."""
    return _LINES.match(function) is not None


def place_of(function: str) -> str:
    """``train.py:116`` of the same; ``train.py:30`` of ``lines 30 to 41 (train.py)``."""
    at = _WITH_PLACE.fullmatch(function)
    if at is None:
        return ""
    lines = _LINES.fullmatch(at["name"])
    return f"{at['place']}:{lines['first']}" if lines and ":" not in at["place"] else at["place"]


def speeding_up(function: str) -> str:
    """``speed up get_batch()`` of ``get_batch (train.py:116)``; empty if the name is too long."""
    name = name_of(function)
    known = name.replace(".", "_").isidentifier() and len(name) <= _LONG_NAME
    return f"speed up {called(name)}" if known else ""


def parts(named: Sequence[OwnFunction], when: str) -> list[str]:
    """Return what each takes.

    ``project (train.py:20) takes 1.30 ms per step``, ``most of that is spent in cat
    (train.py:8)``.

    Args:
        when: follows the seconds, with a blank before it.
    """
    told = []
    for one in named:
        says = _TAKE if one.name.startswith("lines ") else _TAKES
        told.append(says(function=one.name, took=one.s, when=when))
        told += [_MOSTLY(function=one.mainly)] if one.mainly else []
    return told


def is_short(step_s: float) -> bool:
    """Tell whether recording a step of this length costs a good part of it."""
    return step_s < _SHORT_S


def _freed_bytes(facts: RuleInputs) -> float:
    """Return the bytes of a batch in shared memory that the main thread frees.

    0.0: it is small, or another thread does.
    """
    if not num_workers(facts) or facts.setting("pin_memory"):
        return 0.0
    nbytes = shared_bytes(facts)
    return nbytes if nbytes >= _LARGE_BYTES else 0.0


def _recording_s(step: StepSummary) -> float:
    return _OF_RECORDING * step.sampled.recording_s if step.sampled is not None else 0.0


@dataclass(frozen=True)
class NamedFunctions:
    """The program's own code between models, backward passes and updates, where it is notable.

    Attributes:
        own: all of it.
        functions: those that take most.
        took_s: seconds per step of these, without waiting for a CPU and freeing batches.
        queued: share (0 to 1) of this time that probably waits for a CPU.
        freed_bytes, freeing_s: of a batch in shared memory that the same lines free.
    """

    own: OwnCode
    functions: Sequence[OwnFunction]
    took_s: float
    queued: float
    freed_bytes: float
    freeing_s: float


def _in_each_step(step: StepSummary) -> OwnCode | None:
    """Return the program's own code, without collections and what only every nth step runs.

    None: it was not looked at. What is left out is part of the function that runs only then, or
    else of the one that takes most. With a stall in no known function, it may be in any of these.
    """
    own, stall = step.own_code, step.periodic
    if own is None or not own.functions or stall is not None and not stall.function:
        return own
    of = stall.stages if stall is not None else step.garbage.stages if step.garbage else {}
    apart_s = sum(of.get(stage, 0.0) for stage in ("other", "loss"))
    most = max(own.functions, key=lambda one: one.s)
    if stall is None and apart_s < _HARDLY * most.s:
        return own
    apart = stall.function if stall is not None else name_of(most.name)
    functions = []
    for one in own.functions:
        if name_of(one.name) != apart:
            functions.append(one)
        elif apart_s < _MOST_OF_IT * one.s:
            functions.append(_less(one, apart_s))
        else:  # the rest of it lies in the same steps: collections, or what others take longer
            apart_s = max(apart_s, one.s)
    functions.sort(key=lambda one: -one.s)
    return replace(own, s=max(own.s - apart_s, 0.0), functions=functions)


def _less(one: OwnFunction, seconds: float) -> OwnFunction:
    low, took, high = (max(s - seconds, 0.0) for s in (one.low_s, one.s, one.high_s))
    return replace(one, s=took, low_s=low, high_s=high)


def named_functions(facts: RuleInputs) -> NamedFunctions | None:
    """Return the functions and lines that take much of the step.

    None: they take little, or were not looked at.
    """
    step, own = facts.step, _in_each_step(facts.step)
    # this code probably waits as often as the model does
    queued = 0.0 if step.gpu_stages is not None else facts.main_queued_share or 0.0
    freed_bytes = _freed_bytes(facts)
    freeing_s = FREEING_S_PER_BYTE.middle * freed_bytes
    if own is None or not own.functions:
        return None
    whole_s = (own.s - freeing_s) * (1 - queued)
    # what freeing takes is only estimated
    surely_s = 0.0 if freed_bytes else own.functions[0].low_s * (1 - queued)
    if whole_s < _MIN_SHARE * step.mean_s and surely_s < _MIN_NAMED * step.mean_s:
        return None
    if is_short(step.mean_s) or step.mean_s * facts.throughput.steps < _MIN_TRAINING_S:
        return None
    named = [one for one in own.functions if one.s >= NAMED_SHARE * step.mean_s][:NAMED]
    took_s = (sum(one.s for one in named) - freeing_s) * (1 - queued)
    return (
        NamedFunctions(own, named, took_s, queued, freed_bytes, freeing_s)
        if took_s >= max(_MIN_NAMED * step.mean_s, _recording_s(step))
        else None
    )


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
