"""Samples spend their time in many small files."""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import SHARE, Evidence, Finding, Refused, Severity
from feedline.analysis.ledger.rule import CHEAPER, Effort, Rule, Time
from feedline.analysis.ledger.view.input_wait import making_share, severity
from feedline.analysis.ledger.view.slow_code import making_line
from feedline.analysis.ledger.view.storage import MIN_BLOCKED_SHARE, spared_s, storage_share
from feedline.analysis.text.formatting import counted, number
from feedline.analysis.text.sentences import PART, PERCENT, SIZE, Sentence

_RULE_ID = "small_files"

_SAYS = Sentence(
    "each sample reads {pieces} of {size}, which takes {part} of its time",
    part=PERCENT,
    pieces=PART,
    size=SIZE,
)
_PACK = "Pack the samples into large files that are read in order: tar, LMDB or RecordIO."
_PACKS_IMAGES = "`feedline pack` packs images."
_IF_FILES = "only if each sample is a file of its own"

#: docs/rules/small_files.md. Below it the time of a file is the time of a few calls and round
#: trips, not of its bytes.
_MAX_FILE_BYTES = 64 * 1024

#: Less than the buffer of any library (4 KiB in C, 8 KiB in Python): reads as small as this are
#: whole files, not pieces of larger ones.
_MIN_BUFFER_BYTES = 4096

#: A sample that needs less than one read is not stored in files of its own
#: (docs/rules/small_files.md).
_MIN_READS = 1.0

#: CPU time of a small read with its part of opening and closing the file, in Python
#: (docs/rules/small_files.md). More is spent on the bytes: unpacking.
_PER_CALL_S = 30e-6

#: Operations of which each call opens one file. ``zarr.Array`` reads whole chunks: each is a file.
_OPENS = ("PIL.open", "numpy.load", "numpy.fromfile", "torchvision.read_file", "cv2.imread")
_READS_WHOLE_FILES = ("zarr.Array",)

#: A mean number that differs less from a whole one is shown as that.
_WHOLE = 0.005


def _check(facts: RuleInputs) -> Finding | None:
    """Compare the bytes of a mean file with 64 KiB, where reading is a large part of the sample."""
    traffic, mean = facts.traffic, _file_bytes(facts)
    if mean is None or mean >= _MAX_FILE_BYTES or not traffic.read_chars or not traffic.read_calls:
        return None
    # where no hook saw the reads
    reading = making_share(facts, "read") * _of_calls(facts) or storage_share(facts) or 0.0
    cost_s = spared_s(facts, reading)
    weight = severity(facts, cost_s)
    if reading < MIN_BLOCKED_SHARE or weight is Severity.INFO:
        return None
    files, of_a_read = _opened(facts), traffic.read_chars / traffic.read_calls
    pieces = _many(files, "file") if files else _many(traffic.read_calls, "small piece")
    of_files = [
        Evidence("files", "files opened per sample", files, "files"),
        Evidence("file_bytes", "bytes read per file", mean, "B"),
    ]
    return Finding(
        _RULE_ID,
        weight,
        message=_SAYS(part=reading, pieces=pieces, size=mean if files else of_a_read),
        evidence=[
            Evidence("read_share", "reading, share of a sample's time", reading, SHARE),
            *(of_files if files else []),
            Evidence("reads", "reads per sample", traffic.read_calls, "reads"),
            Evidence("read_bytes", "bytes per read", of_a_read, "B"),
        ],
        fix=_PACK,
        fix_more=[_PACKS_IMAGES] if facts.decodes_images else [],
        place=making_line(facts),
        condition="" if files else _IF_FILES,
        how_to_check="Read 50 of the files from one tar. If the read time per sample stays the "
        "same, this finding is wrong.",
        cost_s=cost_s,
    )


def _change(facts: RuleInputs) -> Refused:
    """Refuse to predict.

    How long a sample takes to read from a large file was not recorded.
    """
    return Refused(
        "unknown_storage",
        "The speed of reading the samples from large files is unknown. `feedline probe --parts "
        "read --data DIR` compares reading in order "
        "with reading file by file.",
    )


def _opened(facts: RuleInputs) -> float:
    """Return how many files per sample hooks saw being opened.

    0: there were none, or by calls without a hook. More than there are reads are not files: images
    are opened from memory, too.
    """
    opened = (
        sum(operation.calls for operation in facts.workers.operations if operation.name in _OPENS)
        if facts.workers
        else 0.0
    )
    return opened if opened <= (facts.traffic.read_calls or 0.0) else 0.0


def _many(x: float, what: str) -> str:
    """Return ``1 file``, ``1.70 files``: a mean that is a whole number is told as one."""
    return counted(round(x), what) if abs(x - round(x)) < _WHOLE else f"{number(x)} {what}s"


def _file_bytes(facts: RuleInputs) -> float | None:
    """Return the bytes read of a mean file, at most.

    None: too few reads for a sample to have files of its own, or unknown. Libraries read a large
    file in pieces (Pillow a JPEG in 64 kB), so small reads alone do not tell small files. Where no
    hook saw how many files were opened, a sample is taken to lie in one.
    """
    read, reads = facts.traffic.read_chars, facts.traffic.read_calls
    if not read or reads is None or reads < _MIN_READS:
        return None
    if opened := _opened(facts):
        return read / opened
    each_whole = facts.workers is not None and any(
        operation.name in _READS_WHOLE_FILES for operation in facts.workers.operations
    )
    return read / reads if each_whole or read / reads < _MIN_BUFFER_BYTES else read


def _of_calls(facts: RuleInputs) -> float:
    """Return the share (0 to 1) of reading that its calls take.

    They wait for storage, and cost some CPU time each.
    """
    cost = facts.costs.get("read")
    if cost is None or not cost.cpu_s:
        return 1.0
    blocked_s, calls = cost.blocked_s or 0.0, facts.traffic.read_calls or 0.0
    return (blocked_s + min(cost.cpu_s, calls * _PER_CALL_S)) / (blocked_s + cost.cpu_s)


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    claims=("sample/read",),
    effort=Effort.DATA,
    lifts=CHEAPER | {"ceiling"},
    time=Time.IDLE,
    of_input=True,
    action="pack the small files",
)
