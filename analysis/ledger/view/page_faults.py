"""Page faults for memory that samples free and map again, and the variables that avoid them."""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.view import sample
from feedline.analysis.ledger.view.expected import KERNEL
from feedline.analysis.ledger.view.input_wait import num_workers
from feedline.analysis.ledger.view.sample import from_swap
from feedline.analysis.ledger.view.slow_stage import is_slowest_stage
from feedline.analysis.measure.costs import MOST_FAULT_S, PAGE_BYTES

_MIN_BYTES = 1e6


#: Pages that are mapped per decoded byte: more are not those of images, but of a memory map.
_LEAST_OF_DECODED = 0.25


_MOST_OF_DECODED = 10


#: Largest threshold for mmap that every glibc takes, and the first version known to take larger
#: ones (mallopt(3)).
_MOST_BYTES = 32 << 20


_LARGER_SINCE = (2, 36)


_LARGER_BYTES = 256 << 20


def faults_share(facts: RuleInputs) -> float | None:
    """Return the share (0 to 1) of a sample's CPU time in page faults for memory of images.

    None: not known, or of something else.
    """
    every = facts.traffic.minor_faults
    faults = faults_per_sample(facts)
    system_s = facts.traffic.system_s
    total = sample.total(facts)
    decode, reading = facts.costs.get("decode"), facts.costs.get("read")
    if (
        not every
        or faults is None
        or system_s is None
        or total is None
        or not total.cpu_s
        or decode is None
        or not decode.bytes
    ):
        return None
    if is_slowest_stage(facts, KERNEL) or from_swap(facts):
        return None
    mapped = faults * PAGE_BYTES
    if mapped < _MIN_BYTES or not _LEAST_OF_DECODED <= mapped / decode.bytes <= _MOST_OF_DECODED:
        return None
    in_faults_s = min(system_s - ((reading.cpu_s or 0.0) if reading else 0.0), every * MOST_FAULT_S)
    return min(1.0, max(0.0, in_faults_s * faults / every / total.cpu_s))


def faults_per_sample(facts: RuleInputs) -> float | None:
    """Return the page faults per sample.

    Those of the shared memory that workers collate into are left out: malloc does not give it.
    """
    faults, collate = facts.traffic.minor_faults, facts.costs.get("collate")
    if (
        faults is None
        or collate is None
        or not num_workers(facts)
        or facts.loader is None
        or "shared" not in facts.loader.flags
    ):
        return faults
    return max(0.0, faults - (collate.bytes or 0.0) / PAGE_BYTES)


def assignments(facts: RuleInputs) -> str:
    """Return ``A=1 B=2``, the variables as before a command; "": none."""
    return " ".join(f"{name}={value}" for name, value in environment(facts).items())


def environment(facts: RuleInputs) -> dict[str, str]:
    """Return the variables with which glibc keeps the memory of these images.

    {}: it cannot, or is not what the program has.
    """
    decode = facts.costs.get("decode")
    most = _LARGER_BYTES if facts.glibc >= _LARGER_SINCE else _MOST_BYTES
    if not facts.glibc or decode is None or (decode.bytes or 0.0) >= most:
        return {}
    return {"MALLOC_MMAP_THRESHOLD_": str(most), "MALLOC_TRIM_THRESHOLD_": str(_LARGER_BYTES)}
