"""The device waits for the host to launch its next kernel."""

from feedline.analysis.ledger.finding import SHARE, Evidence, Finding, Severity
from feedline.analysis.ledger.rule import Rule
from feedline.analysis.ledger.trace_facts import TraceFacts
from feedline.analysis.ledger.view import launches
from feedline.analysis.text.formatting import counted
from feedline.analysis.text.sentences import PART, PERCENT, TIME, Sentence

_RULE_ID = "host_bound"

_SAYS = Sentence(
    "the device is idle for {part} of {whole} while the host launches work{perhaps}",
    part=PERCENT,
    whole=PART,
    perhaps=PART,
)
_HOST = "the host runs Python, operators or kernel launches meanwhile"
_KERNELS = Sentence(
    "{kernels} {in_steps} take {mean} each on average", kernels=PART, in_steps=PART, mean=TIME
)
_ONE_KERNEL = Sentence("1 kernel {in_steps} takes {mean}", in_steps=PART, mean=TIME)
_TABLE = "The Kernels table of the HTML report shows which operators launch them."


def _check(facts: TraceFacts) -> Finding | None:
    """Weigh the time in which the device had nothing to do while the host was busy.

    The host ran operators, Python or launches.
    """
    part = facts.share("host_launch")
    weight = Severity.of(part)
    if weight is Severity.INFO or not facts.shown.gpu.busy_ns:
        return None
    computing = [row for row in facts.shown.kernels if not row.communication]
    kernels = sum(row.count for row in computing)
    mean = sum(row.total_ns for row in computing) / max(kernels, 1) / 1e9
    steps = max(len(facts.budgets[facts.rank].edges) - 1, 1)
    idle_s = facts.cost_s("host_launch") * steps / max(kernels, 1)
    # without any, the device ran collectives or copies only
    lengths = [
        _ONE_KERNEL(in_steps=facts.in_steps, mean=mean)
        if kernels == 1
        else _KERNELS(kernels=counted(kernels, "kernel"), in_steps=facts.in_steps, mean=mean)
    ] * bool(kernels)
    perhaps = " or waits for data" if facts.shown.input.reasons.get("loader_pct") else ""
    return Finding(
        _RULE_ID,
        weight,
        message=_SAYS(part=part, whole=facts.whole, perhaps=perhaps),
        more=[_HOST, *lengths],
        evidence=[
            Evidence("host_launch_share", "device idle while the host worked", part, SHARE),
            Evidence("kernels", f"kernels {facts.in_steps}", kernels, ""),
            *([Evidence("mean_kernel_s", "mean kernel duration", mean, "s")] if kernels else []),
        ],
        fix=launches.fix_in(facts.shown.launching, mean, idle_s),
        fix_more=[_TABLE],
        how_to_check=launches.how_to_check(mean, idle_s),
        cost_s=facts.cost_s("host_launch"),
    )


RULE: Rule[TraceFacts] = Rule(
    _RULE_ID,
    _check,
    launches.change,
    claims=("host_launch",),
    bound="Host-bound",
    bound_or_input="Host-bound, or input-bound",
    action="launch fewer kernels",
)
