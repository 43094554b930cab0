"""Memory that samples free goes back to the system, and is mapped and cleared again for the next sample."""

from feedline.analysis.formatting import count, share, size
from feedline.analysis.ledger.change import Change, Factor
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import SHARE, Evidence, Finding, Severity
from feedline.analysis.ledger.view import cpus
from feedline.analysis.ledger.view.expected import KERNEL
from feedline.analysis.ledger.view.input_wait import maker, num_workers, severity
from feedline.analysis.ledger.view.storage import spared_s
from feedline.analysis.measure.costs import MOST_FAULT_S, PAGE_BYTES
from feedline.analysis.measure.stages import MAKING_STAGES
from feedline.analysis.rules.input.slow_for_its_bytes import names
from feedline.analysis.rules.input.swapping import from_swap

RULE_ID = "page_faults"

#: Smallest share of a sample's CPU time that is reported, and fewest bytes that a sample maps again (docs/rules.md).
MIN_SHARE, _MIN_BYTES = 0.15, 1e6

#: Pages that are mapped per decoded byte: more are not those of images, but of a memory map.
_LEAST_OF_DECODED, _MOST_OF_DECODED = 0.25, 10

#: Largest threshold for mmap that every glibc takes, and the first version known to take larger ones (mallopt(3)).
_MOST_BYTES, _LARGER_SINCE, _LARGER_BYTES = 32 << 20, (2, 36), 256 << 20


def check(facts: RuleInputs) -> Finding | None:
    """Compare the kernel's part of a sample, without reading, with the whole; silent where the memory may be that of a memory map."""
    faults, part = _faults(facts), faults_share(facts)
    if faults is None or part is None or part < MIN_SHARE or not environment(facts):
        return None
    cost_s = spared_s(facts, part)
    weight = severity(facts, cost_s)
    if weight is Severity.INFO:
        return None
    return Finding(
        RULE_ID,
        weight,
        message=f"{share(part)} of the CPU time per sample is spent on {count(faults)} page faults: {maker(facts)} frees large buffers "
        f"after each sample, and the system has to map and clear {size(faults * PAGE_BYTES)} again for the next one",
        evidence=[
            Evidence("faults_share", "page faults, share of CPU time per sample", part, SHARE),
            Evidence("minor_faults", "minor page faults per sample, without those of shared memory", faults, "faults"),
            Evidence("mapped_bytes", "memory mapped by these, per sample", faults * PAGE_BYTES, "B"),
            Evidence("system_s", "CPU time per sample in the kernel", facts.traffic.system_s or 0.0, "s"),
        ],
        fix=f"Start the program with {assignments(facts)} in its environment, so that malloc keeps freed memory. Check that the machine "
        "has enough memory: each process may then keep as many bytes as these variables say, or more.",
        how_to_check="Run with these variables. If the page faults per sample stay the same, this finding is wrong.",
        cost_s=cost_s,
        environment=environment(facts),
    )


def change(facts: RuleInputs) -> Change:
    """All stages of a sample take less CPU time: which of them the page faults belong to is not recorded."""
    left = 1 - (faults_share(facts) or 0.0)
    return Change(stages={stage: Factor(cpu=left) for stage in MAKING_STAGES})


def faults_share(facts: RuleInputs) -> float | None:
    """Share (0 to 1) of a sample's CPU time in page faults for memory of images; None: not known, or of something else."""
    every, faults, system_s, total = facts.traffic.minor_faults, _faults(facts), facts.traffic.system_s, cpus.total(facts)
    decode, reading = facts.costs.get("decode"), facts.costs.get("read")
    if not every or faults is None or system_s is None or total is None or not total.cpu_s or decode is None or not decode.bytes:
        return None
    if names(facts, KERNEL) or from_swap(facts):
        return None
    mapped = faults * PAGE_BYTES
    if mapped < _MIN_BYTES or not _LEAST_OF_DECODED <= mapped / decode.bytes <= _MOST_OF_DECODED:
        return None
    in_faults_s = min(system_s - ((reading.cpu_s or 0.0) if reading else 0.0), every * MOST_FAULT_S)
    return min(1.0, max(0.0, in_faults_s * faults / every / total.cpu_s))


def _faults(facts: RuleInputs) -> float | None:
    """Page faults per sample, without those of the shared memory that workers collate into, which malloc does not give."""
    faults, collate = facts.traffic.minor_faults, facts.costs.get("collate")
    if faults is None or collate is None or not num_workers(facts) or facts.loader is None or "shared" not in facts.loader.flags:
        return faults
    return max(0.0, faults - (collate.bytes or 0.0) / PAGE_BYTES)


def assignments(facts: RuleInputs) -> str:
    """``A=1 B=2``: the variables as before a command; "": none."""
    return " ".join(f"{name}={value}" for name, value in environment(facts).items())


def environment(facts: RuleInputs) -> dict[str, str]:
    """Variables with which glibc keeps the memory of these images; {} if it cannot, or is not what the program has."""
    decode = facts.costs.get("decode")
    most = _LARGER_BYTES if facts.glibc >= _LARGER_SINCE else _MOST_BYTES
    if not facts.glibc or decode is None or (decode.bytes or 0.0) >= most:
        return {}
    return {"MALLOC_MMAP_THRESHOLD_": str(most), "MALLOC_TRIM_THRESHOLD_": str(_LARGER_BYTES)}
