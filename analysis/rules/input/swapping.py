"""Samples wait for their own memory, which the machine has moved to swap."""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import SHARE, Evidence, Finding, Refused, Severity, measured
from feedline.analysis.ledger.rule import CHEAPER, Effort, Rule, Time
from feedline.analysis.ledger.view import sample
from feedline.analysis.ledger.view.input_wait import severity
from feedline.analysis.ledger.view.loader_call import place
from feedline.analysis.ledger.view.sample import from_swap
from feedline.analysis.ledger.view.storage import MIN_BLOCKED_SHARE, spared_s, storage_share
from feedline.analysis.text.sentences import PART, PERCENT, SIZE, Sentence

_RULE_ID = "swapping"

_SAYS = Sentence(
    "the machine is swapping ({read}/s), and samples wait for memory {held} of their time",
    held=PERCENT,
    read=SIZE,
)
_FULL = Sentence("the memory of its control group, {limit}, is full", limit=SIZE)
_LESS = "Use less memory (smaller caches, arrays instead of lists, a memory map)"
_ADD, _RAISE = f"{_LESS}, or add memory.", f"{_LESS}, or raise the control group's memory limit."
_FEWER = Sentence("A lower {names} needs less memory, too (now {values}).", names=PART, values=PART)


def _kernel_share(facts: RuleInputs) -> float:
    """Return the share (0 to 1) of a sample's time on a CPU in the kernel.

    The kernel finds the page, and unpacks it where swap is compressed memory.
    """
    total = sample.total(facts)
    return min(1.0, (facts.traffic.system_s or 0.0) / total.wall_s) if total is not None else 0.0


def _check(facts: RuleInputs) -> Finding | None:
    """Look for samples that are held up in page faults while the machine reads from swap."""
    if not from_swap(facts) or facts.swapped_in is None:
        return None
    blocked, kernel = storage_share(facts) or 0.0, _kernel_share(facts)
    held = min(1.0, blocked + kernel)
    if held <= MIN_BLOCKED_SHARE:
        return None
    cost_s = spared_s(facts, held)
    weight = severity(facts, cost_s)
    if weight is Severity.INFO:
        return None
    limit = facts.full_limit_bytes
    return Finding(
        _RULE_ID,
        weight,
        message=_SAYS(held=held, read=facts.swapped_in),
        more=[] if limit is None else [_FULL(limit=limit)],
        evidence=[
            Evidence(
                "blocked_by_storage_share",
                "blocked by storage, share of a sample's time",
                blocked,
                SHARE,
            ),
            Evidence("kernel_share", "in the kernel, share of a sample's time", kernel, SHARE),
            Evidence(
                "held_share",
                "held up by storage or in the kernel, share of a sample's time",
                held,
                SHARE,
            ),
            Evidence(
                "swapped_in_bytes_per_s", "read back from swap per second", facts.swapped_in, "B/s"
            ),
            Evidence(
                "major_faults",
                "major page faults per sample",
                facts.traffic.major_faults or 0.0,
                "faults",
            ),
            *measured((("limit_bytes", "limit of its control group, which was full", limit, "B"),)),
        ],
        fix=_ADD if limit is None else _RAISE,
        fix_more=_fewer(facts),
        place=place(facts) if _fewer(facts) else "",
        how_to_check="Run with less in memory, so that nothing is swapped (si is 0 in `vmstat "
        "1`). If samples still take as long, this "
        "finding is wrong.",
        cost_s=cost_s,
    )


def _fewer(facts: RuleInputs) -> list[str]:
    """Return the loader's settings that take memory, as they are."""
    now = {
        name: value for name in ("num_workers", "prefetch_factor") if (value := facts.setting(name))
    }
    values = ", ".join(f"{name}={value}" for name, value in now.items())
    return [_FEWER(names=" or ".join(now), values=values)] if now else []


def _change(facts: RuleInputs) -> Refused:
    """Refuse to predict: how much memory the fix frees is unknown."""
    return Refused(
        "unknown_memory",
        "The amount of memory that can be freed is unknown. Free some, and record again.",
    )


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    claims=("sample",),
    effort=Effort.HARDWARE,
    lifts=CHEAPER | {"step"},
    time=Time.IDLE,
    of_input=True,
    action="use less memory",
)
