"""The device waits for the host to launch its next kernel."""

from feedline.analysis.formatting import counted, seconds, share
from feedline.analysis.ledger.finding import SHARE, Evidence, Finding, Severity
from feedline.analysis.ledger.rule import Rule
from feedline.analysis.ledger.trace_facts import TraceFacts
from feedline.analysis.ledger.view import launches

RULE_ID = "host_bound"


def check(facts: TraceFacts) -> Finding | None:
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
    return Finding(
        RULE_ID,
        weight,
        message=f"for {share(part)} of {facts.whole}, the device is idle while the host runs "
        f"Python, operators or kernel launches"
        f"{', or waits for data' if facts.shown.input.reasons.get('loader_pct') else ''} "
        f"({counted(kernels, 'kernel')} {facts.in_steps}, "
        f"{seconds(mean)}{' each on average' if kernels != 1 else ''})",
        evidence=[
            Evidence("host_launch_share", "device idle while the host worked", part, SHARE),
            Evidence("kernels", f"kernels {facts.in_steps}", kernels, ""),
            Evidence("mean_kernel_s", "mean kernel duration", mean, "s"),
        ],
        fix=f"{launches.fix(mean, idle_s)}; the Kernels table of the HTML report shows which "
        f"operators launch them.",
        how_to_check=launches.how_to_check(mean, idle_s),
        cost_s=facts.cost_s("host_launch"),
    )


RULE: Rule[TraceFacts] = Rule(
    RULE_ID,
    check,
    launches.change,
    claims=("host_launch",),
    bound="Host-bound",
    bound_or_input="Host-bound, or input-bound",
)
