"""Samples read many times the bytes that they use: whole files for a part of each."""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import (
    SHARE,
    Change,
    CostKind,
    Evidence,
    Factor,
    Finding,
    Refused,
    Severity,
)
from feedline.analysis.ledger.rule import Effort, Rule, Time
from feedline.analysis.ledger.view.cpus import making_wait_s
from feedline.analysis.ledger.view.input_wait import severity
from feedline.analysis.ledger.view.slow_code import making_line
from feedline.analysis.text.sentences import PERCENT, SIZE, Sentence

_RULE_ID = "oversize_reads"

_SAYS = Sentence(
    "each sample reads {read} of files, but only {used} reaches the batch", read=SIZE, used=SIZE
)
_TAKES = Sentence("reading is {part} of a sample's time", part=PERCENT)
_MAP = (
    "Open arrays once with np.load(..., mmap_mode='r'), and read only the part that a sample uses."
)
_PART = "Read only the part that a sample uses, or write each sample into a file of its own."
#: Times the bytes that a sample has in its batch: formats that pack (JPEG, gzip) read less than
#: they give, and text or headers take some times as much.
_MANY = 16
_LEAST_BYTES = 256e3  # less is read in less than 0.1 ms from the page cache
_NUMPY = "numpy.load"
#: What takes the bytes of a file that another operation has opened.
_TRANSFERS = ("numpy.fromfile",)
#: Share of the opening time that remains. A memory map opened for each sample takes 0.7 of it, a
#: map that stays open takes none (docs/rules/oversize_reads.md); this is the middle.
_OPENING = 0.35


def _bytes(facts: RuleInputs) -> tuple[float, float] | None:
    """Return the bytes that a sample reads, and has in its batch; None: not known, or not apart."""
    read, batch = facts.traffic.read_chars, facts.throughput.batch_size
    nbytes = facts.loader.batch_bytes if facts.loader is not None else None
    if not read or not batch or not nbytes or facts.decodes_images:
        return None
    used = nbytes * facts.batches_per_step / batch
    return (read, used) if read >= max(_LEAST_BYTES, _MANY * used) else None


def _check(facts: RuleInputs) -> Finding | None:
    """Compare what samples read with what their batches get of it."""
    found, part = _bytes(facts), facts.sample_share("read")
    if found is None:
        return None
    read, used = found
    cost_s = making_wait_s(facts) * part * (1 - used / read)
    weight = severity(facts, cost_s)
    if weight is Severity.INFO:
        return None
    return Finding(
        _RULE_ID,
        weight,
        message=_SAYS(read=read, used=used),
        more=[_TAKES(part=part)],
        evidence=[
            Evidence("read_bytes", "bytes read per sample", read, "B"),
            Evidence("used_bytes", "bytes per sample in a batch", used, "B"),
            Evidence("read_share", "reading, share of a sample's time", part, SHARE),
        ],
        fix=_MAP if _loads_arrays(facts) else _PART,
        place=making_line(facts),
        how_to_check="Use one file, read before training, for all samples. If samples/s do not "
        "rise, this finding is wrong.",
        cost_s=cost_s,
        cost_kind=CostKind.ESTIMATED,
    )


def _loads_arrays(facts: RuleInputs) -> bool:
    operations = facts.workers.operations if facts.workers is not None else []
    return any(one.name == _NUMPY for one in operations)


def _change(facts: RuleInputs) -> Change | Refused:
    """Return reading what a sample uses, in proportion to its bytes, and what opening files leaves."""
    found = _bytes(facts)
    if found is None:
        return Refused("bytes", "How many bytes samples use is not known.")
    left = max(found[1] / found[0], _OPENING * _opening_share(facts))
    return Change(stages={"read": Factor(left, left)})


def _opening_share(facts: RuleInputs) -> float:
    """Return the share (0 to 1) of reading that opens files and finds arrays in them."""
    reads = [
        operation
        for operation in (facts.workers.operations if facts.workers is not None else ())
        if operation.stage == "read"
    ]
    opening_s = sum(one.wall_s for one in reads if one.name not in _TRANSFERS)
    whole_s = sum(one.wall_s for one in reads)
    return opening_s / whole_s if whole_s > opening_s else 0.0


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    effort=Effort.CODE,
    claims=("sample/read",),
    time=Time.IDLE,
    of_input=True,
    action="read only what is used",
)
