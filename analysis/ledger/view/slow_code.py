"""The function and line of the program that take most of making a sample, from sampled stacks."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from feedline.analysis.ledger.calls_per_sample import PER_SAMPLE
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import KNOWN_CALL, SHARE, Evidence, Factor
from feedline.analysis.ledger.known_call import CallFound, KnownCall, known_call
from feedline.analysis.measure.code_places import COLLATE, DATASET
from feedline.analysis.measure.code_tree import CodeNode, PlaceTree, SampledCode, Weight, share_of
from feedline.analysis.measure.source_lines import SourceLines, with_class
from feedline.analysis.measure.stages import TAPPED_STAGES
from feedline.analysis.measure.user_code import library_of
from feedline.analysis.text.formatting import called

#: What chunk_unpacked is where reads use all of the chunks that they touch.
_UNPACKED = KnownCall(
    "unpacked",
    "What a sample needs is unpacked each time it is read.",
    "Store the data uncompressed, or with a faster method such as LZ4",
    "https://github.com/mani-skill/ManiSkill/pull/1040",
)

#: Of its caller's time: a function that takes this much of it is named instead.
_MOST = 0.7
#: The same of one that a library calls, such as __getitem__: everything is inside it.
_MOST_OF_ENTRY = 0.5
#: Of a function's time: a line that takes this much of it is named with it.
_MOST_OF_LINES = 0.5
#: A call that unpacks chunks, and the bytes of these for each byte that is used, from which on it is
#: a part of a chunk that is.
CHUNKS, PARTLY = ("chunk_unpacked", "zarr_chunk_unpacked"), 1.5
FEWEST = 10  # samples in a function: fewer say little of it
#: As many are enough for one that surely takes most of what it is a part of.
_FEWEST_OF_MOST, _SURELY_MOST = 6, 0.5
#: Stages of a sample that functions of the program in a place take, beside operations of libraries
#: that are stages of their own.
_STAGES = {DATASET: ("dataset", "user"), COLLATE: ("collate",)}


def enough(part_s: float, whole: Weight) -> bool:
    """Return whether enough samples show a part of a place, or of making samples."""
    share, low, _ = share_of(part_s, whole)
    return share * whole.number >= (_FEWEST_OF_MOST if low >= _SURELY_MOST else FEWEST)


@dataclass(frozen=True)
class SlowCode:
    """A function that takes much of making a sample.

    Attributes:
        place: dataset or collate.
        node: the function.
        name: of it, with its class where it is a special method: ``Rows.__getitem__``.
        line: of it, where one takes most; else that which takes more than the others.
        has_line: whether that line takes most of the function.
        share, low, high: of making a sample, with the 95 % interval.
        of_stages: stage of a sample -> share (0 to 1) of it that the function takes.
        known: a call that is known to be slow, and takes most of it.
        library: the library's function that the line calls; empty: none is known.
        caller: function and line that call it; empty: a library does.
    """

    place: str
    node: CodeNode
    name: str
    line: int
    has_line: bool
    share: float
    low: float
    high: float
    of_stages: Mapping[str, float]
    known: CallFound | None
    library: str
    caller: str

    @property
    def where(self) -> str:
        """``data.py:88``."""
        return f"{self.node.file}:{self.line}"

    @property
    def rows(self) -> list[str]:
        """Rows of the ledger that are its time.

        They are its own, those of what it calls, and library operations that are stages.
        """
        functions = dict.fromkeys(node.function for node in self.node.under())
        own = [f"sample/{stage}/user/{name}" for stage in _STAGES[self.place] for name in functions]
        return [*own, *(f"sample/{stage}" for stage in self.of_stages if stage in TAPPED_STAGES)]

    def scaled(self, left: float) -> dict[str, Factor]:
        """Return what becomes of stages when the function takes this share (0 to 1) of its time."""
        return {
            stage: Factor(1 - part * (1 - left), 1 - part * (1 - left))
            for stage, part in self.of_stages.items()
            if part > 0
        }


def slow_code(facts: RuleInputs) -> SlowCode | None:
    """Return the function that takes most of making a sample.

    None: samples of stacks are missing or too few.

    What libraries do in operations that are stages of their own, such as decoding, does not count:
    those have rules of their own. It does where the call is known to be slow.
    """
    slow = slowest(facts.code, facts.costs) if facts.code is not None else None
    unpacked = unpacked_per_byte(facts)
    if slow is None or slow.known is None or slow.known.call.name not in CHUNKS or unpacked is None:
        return slow
    return replace(
        slow, known=replace(slow.known, call=_UNPACKED) if unpacked < PARTLY else slow.known
    )


def unpacked_per_byte(facts: RuleInputs) -> float | None:
    """Return the bytes of chunks that are unpacked for each byte that is used.

    None: no array in chunks is read, or their size is not known.
    """
    reads = facts.workers.operations if facts.workers is not None else ()
    known = [one for one in reads if one.unpacked is not None]
    return max(known, key=lambda one: one.wall_s).unpacked if known else None


def slowest(code: SampledCode, stages: Collection[str] = ()) -> SlowCode | None:
    """Return the same of sampled code alone.

    Args:
        stages: of a sample that are known.
    """
    making = code.making
    found = [
        slow
        for key in code.maker_places
        if (slow := _of_place(code.source, code.places[key], making, stages)) is not None
    ]
    return max(found, key=lambda slow: slow.share, default=None)


def _of_place(
    source: SourceLines, tree: PlaceTree, making: Weight, stages: Collection[str]
) -> SlowCode | None:
    node, caller = deepest(tree.root, source)
    if node is None:
        return None
    counted_s = _counted_s(node, source)
    share, low, high = share_of(counted_s, making)
    if not enough(counted_s, making):
        return None
    known = known_call(node, PER_SAMPLE, source)
    line, has_line = _line(node, known)
    return SlowCode(
        tree.place,
        node,
        with_class(source.text(node.file, node.function), line, node.function),
        line,
        has_line,
        share,
        low,
        high,
        _of_stages(stages, tree, node, known is not None),
        known,
        library_of(node, line),
        caller,
    )


def deepest(root: CodeNode, source: SourceLines) -> tuple[CodeNode | None, str]:
    """Return the deepest function that still takes most of its caller's time, and its caller."""
    node, caller = None, ""
    candidates = list(root.calls.values())
    while candidates:
        child = max(candidates, key=lambda other: _counted_s(other, source))
        most = _MOST if caller else _MOST_OF_ENTRY
        if node is not None and _counted_s(child, source) < most * _counted_s(node, source):
            break
        if node is not None:
            line = max(child.called_at, key=lambda at: child.called_at[at])
            caller = f"{called(node.function)}, {node.file}:{line}"
        node = child
        candidates = list(node.calls.values())
    return node, caller


def _counted_s(node: CodeNode, source: SourceLines) -> float:
    """Seconds in a function and below it, without operations that are stages of their own.

    With them where they are known to be slow.
    """
    if not node.all_tapped_s:
        return node.seconds
    known = known_call(node, PER_SAMPLE, source)
    return node.seconds - (node.all_tapped_s if known is None else 0.0)


def _line(node: CodeNode, known: CallFound | None) -> tuple[int, bool]:
    """Return the line that takes most, and whether it takes most of the function.

    That of a known call, if it is in the function itself.
    """
    if known is not None and known.file == node.file and known.line in node.lines:
        return known.line, node.lines[known.line] >= _MOST_OF_LINES * node.seconds
    return node.line, node.lines[node.line] >= _MOST_OF_LINES * node.seconds


def _of_stages(
    known_stages: Collection[str], tree: PlaceTree, node: CodeNode, known: bool
) -> dict[str, float]:
    tapped_s = node.all_tapped_s
    own = (node.seconds - tapped_s) / tree.untapped_s if tree.untapped_s else 0.0
    parts = {stage: min(1.0, own) for stage in _STAGES[tree.place]}
    of_tapped = tree.weight.seconds - tree.untapped_s
    if tapped_s and of_tapped and known:
        parts |= {stage: min(1.0, tapped_s / of_tapped) for stage in TAPPED_STAGES}
    return {stage: part for stage, part in parts.items() if stage in known_stages}


def making_line(facts: RuleInputs) -> str:
    """Return file and line of the program at which most of making samples is spent.

    Time in libraries called there counts. Empty: too few samples show it.
    """
    code = facts.code
    if code is None:
        return ""
    trees = [code.places[key] for key in code.maker_places]
    tree = max(trees, key=lambda other: other.weight.seconds, default=None)
    if tree is None:
        return ""
    node, below = None, list(tree.root.calls.values())
    while below:
        child = max(below, key=lambda other: other.seconds)
        if node is not None and child.seconds < _MOST * node.seconds:
            break
        node, below = child, list(child.calls.values())
    if node is None or tree.weight.number < FEWEST and not enough(node.seconds, tree.weight):
        return ""
    return node.place


def reported(call: KnownCall, share: float, whole: str) -> Evidence:
    """Return the share (0 to 1) that a call takes which is known to be slow.

    With where people report it.

    Args:
        whole: what the share is of, in words.
    """
    what = f"{call.name.replace('_', ' ')}, share of {whole}; reported in {call.report}"
    return Evidence(KNOWN_CALL, what, share, SHARE, call.name)
