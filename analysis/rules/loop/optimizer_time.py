"""The optimizer takes much of the step.

It works tensor by tensor in Python, or runs other code inside its step().
"""

import re
from dataclasses import dataclass

from feedline.analysis.ledger.calls_per_step import PER_UPDATE
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import (
    SHARE,
    CostKind,
    Evidence,
    Finding,
    Refused,
    Severity,
    measured,
)
from feedline.analysis.ledger.known_call import KnownCall, known_call
from feedline.analysis.ledger.rule import LESS_TO_COMPUTE, Rule
from feedline.analysis.ledger.view.cpus import kind_of_work
from feedline.analysis.ledger.view.launches import may_be_fused, without_foreach
from feedline.analysis.ledger.view.loop_code import line_of_stage
from feedline.analysis.ledger.view.model_code import line_with
from feedline.analysis.ledger.view.slow_code import FEWEST, enough, reported
from feedline.analysis.measure.code_places import OPTIMIZER
from feedline.analysis.measure.code_tree import MAIN, share_of
from feedline.analysis.measure.model import Updated
from feedline.analysis.measure.source_lines import called_in
from feedline.analysis.measure.step_model import StepSummary
from feedline.analysis.text.formatting import counted
from feedline.analysis.text.sentences import COUNT, FUNCTION, NAME, PART, PERCENT, TIME, Sentence

_RULE_ID = "optimizer_time"
_STAGE = "optimizer"

_SAYS = Sentence(
    "{optimizer}.step() takes {part} of the {step} step", optimizer=NAME, part=PERCENT, step=TIME
)
_ONE_BY_ONE = Sentence(
    "it updates {tensors} with {elements} elements, one after the other",
    tensors=PART,
    elements=COUNT,
)
_UPDATES = Sentence("it updates {tensors} with {elements} elements", tensors=PART, elements=COUNT)
_SPARSELY = Sentence(
    "it updates {tensors}, {sparse} of them by sparse gradients, which no fused update takes",
    tensors=PART,
    sparse=COUNT,
)
_NEEDS = Sentence("that needs at most {needs}, so other code runs inside it", needs=TIME)
_EMBEDDED = Sentence(
    "{embedded} of these elements are in embeddings, whose rows are all updated", embedded=PERCENT
)
_FEW = Sentence("a batch has about {used} of their {rows} rows", used=COUNT, rows=COUNT)
_SPARSE = (
    "Make the embedding with sparse=True, and update it with SparseAdam, or SGD without momentum."
)
_MEDIAN = "times as fast as that fused updates were elsewhere, the median"
_LACKING = "of its elements, about those in rows that a batch lacks"
_SELDOM = "only if rows that a batch lacks need no update"
_IN_GROUPS = Sentence(
    "they are in {groups} groups, each of which is updated by calls of its own", groups=COUNT
)
_MERGE = "Put all parameters with the same settings into one group."
_LOOK = "Look at the closure given to step(), and at hooks on the optimizer."
_AT = Sentence("{part} of it is spent at {place}", part=PERCENT, place=NAME)
_LOOK_AT = Sentence("Look at {place}: do what takes the time there less often.", place=NAME)
_CALLED = Sentence("Call {function} less often there, or with less.", function=FUNCTION)
_FUSED_CALL = Sentence(
    "Create the optimizer with torch.optim.{optimizer}(..., fused=True){without}.",
    optimizer=NAME,
    without=PART,
)
#: Beside sparse gradients, which a fused update does not take.
_OR_FUSED = Sentence(
    "Or keep it dense, and create the optimizer with torch.optim.{optimizer}(..., "
    "fused=True){without}.",
    optimizer=NAME,
    without=PART,
)

_MIN_SHARE = 0.20  # of the mean step
#: Times as fast as tensor by tensor that fused updates were, the median of nine
#: (docs/rules/optimizer_time.md).
_FUSED_SPEEDUP = 3.4
#: The same of few tensors with few elements: a fused call takes some time of its own.
_SPEEDUP_OF_FEW, _FEW_UPDATED, _FEW_ELEMENTS = 2.2, 8, 500_000
#: With this many groups, of this few tensors on average, few updates can be batched.
_MANY_GROUPS, _FEW_TENSORS = 16, 4
#: Torch's optimizers that do a few operations on each element, so their tensors and elements tell
#: how long an update takes at most. Others multiply matrices, or call the model (LBFGS).
_ELEMENTWISE = frozenset(
    "SGD Adam AdamW RMSprop Adagrad Adadelta Adamax NAdam RAdam ASGD Rprop".split()
)
#: Of the elements, in embeddings, and of their rows, in a batch: within these, nearly all of an
#: update is of rows that the batch lacks.
_MOSTLY_EMBEDDED, _FEW_ROWS = 0.8, 0.1
#: Of a row's number in a batch: int64, as torch makes them. Fewer bytes, tables that share numbers
#: and rows that the loop draws itself make more rows of a batch; all else in it makes fewer.
_ID_BYTES = 8
#: What an update takes at most, tensor by tensor, on one CPU (docs/rules/optimizer_time.md), and
#: how many times as long is surely something else.
_PER_TENSOR_S, _PER_ELEMENT_S, _TIMES, _AT_LEAST_S = 25e-6, 5e-9, 5.0, 1e-3
#: The same where samples show none of the program's code in it: busy CPUs make it slow.
_TIMES_AT_MOST = 20.0
_MOST_OF_CALL = 1 / 3  # of the update: a line that takes less is not told


@dataclass(frozen=True)
class _Inside:
    """The program's line that takes most of the update.

    Attributes:
        share: of the update, from 0 to 1.
        call: that it makes, and which is known to be slow; None: none is.
        function: that it calls, as its source names it; empty: several, or not known.
    """

    place: str
    share: float
    call: KnownCall | None
    function: str = ""

    @property
    def says(self) -> list[str]:
        at = _AT(part=self.share, place=self.place)
        return [at, self.call.says] if self.call is not None else [at]

    @property
    def fix(self) -> str:
        if self.call is not None:
            return f"{self.call.fix}."
        return _CALLED(function=self.function) if self.function else _LOOK_AT(place=self.place)

    @property
    def evidence(self) -> list[Evidence]:
        if self.call is not None:
            return [reported(self.call, self.share, "the update")]
        return [Evidence("line_share", f"{self.place}, share of the update", self.share, SHARE)]


def _inside(facts: RuleInputs) -> _Inside | None:
    """Return the line inside of the update; None: too few samples show one that takes most of it."""
    code = facts.code
    tree = code.places.get((MAIN, OPTIMIZER)) if code is not None else None
    if code is None or tree is None:
        return None
    known = known_call(tree.inside, PER_UPDATE, code.source, _MOST_OF_CALL)
    if known is not None and enough(known.seconds, tree.weight):
        share = known.seconds / tree.weight.seconds
        return _Inside(f"{known.file}:{known.line}", share, known.call)
    lines = {
        f"{node.file}:{line}": seconds
        for node in tree.inside.under()
        for line, seconds in node.own_lines().items()
    }
    place = max(lines, key=lambda at: lines[at], default="")
    share = lines[place] / tree.weight.seconds if place else 0.0
    if share < _MOST_OF_CALL or not enough(lines[place], tree.weight):
        return None
    file, _, line = place.rpartition(":")
    return _Inside(place, share, None, called_in(code.source.text(file), int(line)))


def _check(facts: RuleInputs) -> Finding | None:
    """Compare what it takes with what an update of as many tensors and elements needs.

    On a GPU, the host only launches it.
    """
    step, updated = facts.step, facts.updated
    took = step.stages.get(_STAGE, 0.0)
    if updated is None or step.gpu_stages is not None or took < _MIN_SHARE * step.mean_s:
        return None
    needs_s = _PER_TENSOR_S * updated.tensors + _PER_ELEMENT_S * updated.elements
    alone = _alone(facts)
    if alone and took > _TIMES_AT_MOST * needs_s + _AT_LEAST_S:
        return None  # neither the program's code nor so few tensors take that long
    slow, bounded = took > _TIMES * needs_s + _AT_LEAST_S and not alone, _bounded(updated)
    inside = _inside(facts) if slow else None
    other_code = slow and (bounded or inside is not None)
    used = None if other_code else _rows_used(facts, updated)
    fused = not may_be_fused(updated)
    split = updated.groups >= _MANY_GROUPS and updated.tensors <= _FEW_TENSORS * updated.groups
    if not other_code and used is None and fused and not split:
        return None  # nothing is known that would make it faster
    call = (_FUSED_CALL if used is None else _OR_FUSED)(
        optimizer=updated.kind, without=without_foreach(updated)
    )
    fixes = [] if fused or other_code else [call]
    faster = bool(fixes) and used is None and not split  # that is all of the fix
    saved = 1 - 1 / _fused_speedup(updated) if faster else _spared(updated, used)
    cost_s = _cost_s(took, needs_s if bounded else None, inside) if other_code else took * saved
    first, *others = [
        *([inside.fix] if inside is not None else [_LOOK] if other_code else []),
        *([_SPARSE] if used is not None else []),
        *([_MERGE] if split else []),
        *fixes,
    ]
    return Finding(
        _RULE_ID,
        Severity.of(cost_s / step.mean_s),
        message=_SAYS(optimizer=updated.kind, part=took / step.mean_s, step=step.mean_s),
        more=[
            *_why(updated, other_code, needs_s if bounded else None),
            *(inside.says if inside is not None else []),
            *_embedded(updated, used),
            *([_IN_GROUPS(groups=updated.groups)] if split else []),
        ],
        evidence=_evidence(step, updated, used, inside, faster),
        fix=first,
        fix_more=others,
        place=inside.place if inside is not None else _place(facts, updated, used, other_code),
        condition=_SELDOM if used is not None else "",
        how_to_check="Time optimizer.step() with time.perf_counter(). If it takes much less, this "
        "finding is wrong.",
        cost_s=cost_s,
        cost_kind=_kind(facts, inside, other_code, faster or used is not None),
    )


def _fused_speedup(updated: Updated) -> float:
    """Return how many times as fast a fused update of so many tensors probably is."""
    few = updated.tensors < _FEW_UPDATED and updated.elements < _FEW_ELEMENTS
    return _SPEEDUP_OF_FEW if few else _FUSED_SPEEDUP


def _evidence(
    step: StepSummary, updated: Updated, used: int | None, inside: _Inside | None, fused: bool
) -> list[Evidence]:
    """Return what the update takes, of how many tensors, and where.

    Args:
        used: rows of embeddings that a step uses, about; None: not known, or no matter.
        fused: a fused optimizer is all of the fix.
    """
    took = step.stages.get(_STAGE, 0.0)
    lacking = _spared(updated, used) if used is not None else None
    return [
        Evidence("optimizer_s", "optimizer, per step", took, "s"),
        Evidence("optimizer_share", "share of the step", took / step.mean_s, SHARE),
        Evidence("tensors", "tensors that it updates", float(updated.tensors), "1"),
        Evidence("elements", "elements in them", float(updated.elements), "1"),
        *measured(
            [
                ("lacking_share", _LACKING, lacking, SHARE),
                ("fused_speedup", _MEDIAN, _fused_speedup(updated) if fused else None, "1"),
            ]
        ),
        *(inside.evidence if inside is not None else []),
    ]


def _alone(facts: RuleInputs) -> bool:
    """Tell whether samples show that the program's code is not most of the update.

    Closures and hooks are its code, so nearly all time is the update's, and the machine is slow.
    """
    tree = facts.code.places.get((MAIN, OPTIMIZER)) if facts.code is not None else None
    if tree is None or tree.weight.number < FEWEST:
        return False
    of_program = sum(node.seconds for node in tree.inside.calls.values())
    return share_of(of_program, tree.weight)[2] < _MOST_OF_CALL


def _bounded(updated: Updated) -> bool:
    """Tell whether an update's tensors and elements tell how long it takes at most.

    A sparse gradient may name a row as often as a batch has it.
    """
    return updated.updates_as in _ELEMENTWISE and not updated.sparse


def _cost_s(took: float, needs_s: float | None, inside: _Inside | None) -> float:
    """Return the seconds of other code: of a known call those that its fix saves.

    Args:
        needs_s: what the update needs at most; None: not known, so the line's own time counts.
    """
    if inside is None or inside.call is None:
        own_s = took if inside is None else took * inside.share
        return own_s if needs_s is None else max(took - needs_s, 0.0)
    return took * inside.share * (1 - (inside.call.left or 0.0))


def _kind(facts: RuleInputs, inside: _Inside | None, other_code: bool, estimated: bool) -> CostKind:
    """Return what the cost says of the gain.

    Updates of fewer groups still take some of the time, as does code that is not known.

    Args:
        estimated: the cost is about what a fused update saves, or one of fewer rows.
    """
    if estimated or (inside is not None and inside.call is not None):
        return CostKind.ESTIMATED
    return kind_of_work(facts) if other_code else CostKind.BOUND


def _spared(updated: Updated, used: int | None) -> float:
    """Return the share (0 to 1) of the update that is of rows which the batch lacks; else all.

    Args:
        used: rows that it has, about; None: not known, or no matter.
    """
    if used is None:
        return 1.0
    return updated.embedded / updated.elements * (1 - used / updated.rows)


def _rows_used(facts: RuleInputs, updated: Updated) -> int | None:
    """Return how many rows of its embeddings a batch has, about: as many as numbers fit into it.

    None: they are not most of what is updated, or not few, or the batch's size is not known.
    """
    nbytes = facts.loader.batch_bytes if facts.loader is not None else None
    if not nbytes or updated.embedded < _MOSTLY_EMBEDDED * updated.elements:
        return None
    used = max(1, round(nbytes / _ID_BYTES))
    return used if used <= _FEW_ROWS * updated.rows else None


def _embedded(updated: Updated, used: int | None) -> list[str]:
    if used is None:
        return []
    part = min(1.0, updated.embedded / updated.elements)
    return [_EMBEDDED(embedded=part), _FEW(used=used, rows=updated.rows)]


def _place(facts: RuleInputs, updated: Updated, used: int | None, other_code: bool) -> str:
    """Return the line that makes the embedding or the optimizer; of other code, the one that updates.

    Empty: it is not known. The line that updates is not the one to change then.
    """
    made = (
        r"\bEmbedding(Bag)?\(" if used is not None else rf"(?<!class )\b{re.escape(updated.kind)}\("
    )
    found = line_with(facts.code, made) if facts.code is not None else ""
    return found or (line_of_stage(facts, _STAGE) if other_code else "")


def _why(updated: Updated, other_code: bool, needs_s: float | None) -> list[str]:
    """Return what it updates.

    Args:
        other_code: it takes far longer than that needs, or the program's own code most of it.
        needs_s: what that needs at most; None: not known.
    """
    tensors = counted(updated.tensors, "tensor")
    if updated.sparse:
        return [_SPARSELY(tensors=tensors, sparse=updated.sparse)]
    of = {"tensors": tensors, "elements": updated.elements}
    if other_code and needs_s is not None:
        return [_UPDATES(**of), _NEEDS(needs=needs_s)]
    one_by_one = not updated.fused and not other_code and updated.updates_as in _ELEMENTWISE
    return [_ONE_BY_ONE(**of) if one_by_one else _UPDATES(**of)]


def _change(facts: RuleInputs) -> Refused:
    """Refuse to predict.

    What other code in it does, and how fast a fused update is here, is unknown.
    """
    return Refused(
        "optimizer", "How much faster the update gets is unknown: try it for some steps."
    )


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    claims=("optimizer",),
    bound="Bound by the optimizer",
    lifts=LESS_TO_COMPUTE,
    action="speed up optimizer.step()",
)
