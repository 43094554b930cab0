"""Samples spend their time in many small reads."""

from feedline.analysis.facts import RuleInputs
from feedline.analysis.finding import SHARE, Evidence, Finding, Severity
from feedline.analysis.formatting import number, share, size
from feedline.analysis.predict.change import Refused
from feedline.analysis.rules.input.input_wait import making_share, severity
from feedline.analysis.rules.input.storage import MIN_BLOCKED_SHARE, spared_s, storage_share

RULE_ID = "small_files"

#: docs/rules.md. Below it the time of a read is the time of a call and a round trip, not of its bytes.
MAX_READ_BYTES = 64 * 1024

#: A sample that needs less than one read is not stored in files of its own (docs/rules.md).
MIN_READS = 1.0

#: CPU time of a small read with its part of opening and closing the file, in Python (docs/rules.md). More is spent on the bytes: unpacking.
PER_CALL_S = 30e-6


def check(facts: RuleInputs) -> Finding | None:
    """Compare the bytes of a mean read with 64 KiB, where reading is a large part of the sample."""
    traffic = facts.traffic
    if not traffic.read_chars or (traffic.read_calls or 0.0) < MIN_READS:
        return None
    if traffic.read_calls is None or traffic.read_chars / traffic.read_calls >= MAX_READ_BYTES:
        return None
    reading = making_share(facts, "read") * _of_calls(facts) or storage_share(facts) or 0.0  # where no hook saw the reads
    cost_s = spared_s(facts, reading)
    weight = severity(facts, cost_s)
    if reading < MIN_BLOCKED_SHARE or weight is Severity.INFO:
        return None
    mean = traffic.read_chars / traffic.read_calls
    return Finding(
        RULE_ID,
        weight,
        message=f"{share(reading)} of the time per sample is spent reading, in {number(traffic.read_calls)} reads of {size(mean)}",
        evidence=[
            Evidence("read_share", "reading, share of time per sample", reading, SHARE),
            Evidence("reads", "reads per sample", traffic.read_calls, "reads"),
            Evidence("read_bytes", "bytes per read", mean, "B"),
        ],
        fix="Pack the samples into large files that are read in order: tar, LMDB or RecordIO (`feedline pack` packs images).",
        how_to_check="Read 50 of the files from one tar. If the read time per sample stays the same, this finding is wrong.",
        cost_s=cost_s,
    )


def change(facts: RuleInputs) -> Refused:
    """How long a sample takes to read from a large file is not in the recording."""
    return Refused(
        "unknown_storage",
        "The speed of reading the samples from large files is unknown. `feedline probe --parts read --data DIR` compares reading in order "
        "with reading file by file.",
    )


def _of_calls(facts: RuleInputs) -> float:
    """Share (0 to 1) of reading that its calls take: they wait for storage, and cost some CPU time each."""
    cost = facts.workers.per_sample.get("read") if facts.workers else None
    if cost is None or not cost.cpu_s:
        return 1.0
    blocked_s, calls = cost.blocked_s or 0.0, facts.traffic.read_calls or 0.0
    return (blocked_s + min(cost.cpu_s, calls * PER_CALL_S)) / (blocked_s + cost.cpu_s)
