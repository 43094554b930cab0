"""Memory that samples free goes back to the system, and is mapped and cleared again."""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import SHARE, Change, Evidence, Factor, Finding, Severity
from feedline.analysis.ledger.rule import Effort, Rule, Time, Waste
from feedline.analysis.ledger.view.input_wait import maker, severity
from feedline.analysis.ledger.view.page_faults import (
    assignments,
    environment,
    faults_per_sample,
    faults_share,
)
from feedline.analysis.ledger.view.storage import spared_s
from feedline.analysis.measure.costs import PAGE_BYTES
from feedline.analysis.measure.stages import MAKING_STAGES
from feedline.analysis.text.sentences import CODE, NAME, PERCENT, SIZE, Sentence

RULE_ID = "page_faults"

_SAYS = Sentence(
    "{part} of the CPU time per sample is spent on page faults that map {mapped} of freed memory "
    "again",
    part=PERCENT,
    mapped=SIZE,
)
_FREES = Sentence(
    "{maker} frees large buffers after each sample, and the system maps and clears them again",
    maker=NAME,
)
_START = Sentence(
    "Start the program with {variables} in its environment, so that malloc keeps freed memory.",
    variables=CODE,
)
_ENOUGH_MEMORY = (
    "only if the machine has enough memory: each process may keep as many bytes as these "
    "variables say, or more"
)

#: Smallest share of a sample's CPU time that is reported, and fewest bytes that a sample maps again
#: (docs/rules/page_faults.md).
_MIN_SHARE = 0.15


def _check(facts: RuleInputs) -> Finding | None:
    """Compare the kernel's part of a sample, without reading, with the whole.

    It is silent where the memory may be that of a memory map.
    """
    faults, part = faults_per_sample(facts), faults_share(facts)
    if faults is None or part is None or part < _MIN_SHARE or not environment(facts):
        return None
    cost_s = spared_s(facts, part)
    weight = severity(facts, cost_s)
    if weight is Severity.INFO:
        return None
    return Finding(
        RULE_ID,
        weight,
        message=_SAYS(part=part, mapped=faults * PAGE_BYTES),
        more=[_FREES(maker=maker(facts))],
        evidence=[
            Evidence("faults_share", "page faults, share of CPU time per sample", part, SHARE),
            Evidence(
                "minor_faults",
                "minor page faults per sample, without those of shared memory",
                faults,
                "faults",
            ),
            Evidence(
                "mapped_bytes", "memory mapped by these, per sample", faults * PAGE_BYTES, "B"
            ),
            Evidence(
                "system_s", "CPU time per sample in the kernel", facts.traffic.system_s or 0.0, "s"
            ),
        ],
        fix=_START(variables=assignments(facts)),
        condition=_ENOUGH_MEMORY,
        how_to_check="Run with these variables. If the page faults per sample stay the same, this "
        "finding is wrong.",
        cost_s=cost_s,
        environment=environment(facts),
    )


def _change(facts: RuleInputs) -> Change:
    """Let all stages of a sample take less CPU time.

    Which of them the page faults belong to is not recorded.
    """
    left = 1 - (faults_share(facts) or 0.0)
    return Change(stages={stage: Factor(cpu=left) for stage in MAKING_STAGES})


RULE: Rule[RuleInputs] = Rule(
    RULE_ID,
    _check,
    _change,
    claims=("sample/*/cpu",),
    effort=Effort.ENVIRONMENT,
    by_variables=True,
    time=Time.NEEDLESS,
    of_input=True,
    ends=frozenset({Waste.PAGE_FAULTS}),
    action="keep memory in the process",
)
