"""The GPU is idle while the host runs the model, the backward pass and the optimizer.

The host launches its work too slowly.
"""

from feedline.analysis.formatting import counted, seconds, share
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import SHARE, Evidence, Finding, Severity
from feedline.analysis.ledger.rule import Rule
from feedline.analysis.ledger.view import launches
from feedline.analysis.measure.stages import STAGES

RULE_ID = "gpu_waits"

#: Of the step. Less may come from steps that differ from the few that were profiled.
_MIN_SHARE = 0.20
#: In these, all that the host has to do is launch the GPU's work, or wait for it.
_LAUNCHING = tuple(spec.name for spec in STAGES if spec.family == "compute" or spec.name == "copy")


def check(facts: RuleInputs) -> Finding | None:
    """Compare the host's time for these stages with the GPU's work in the whole step.

    The difference is the least that the GPU idles in them: some of its work may lie in other
    stages. Several ranks also wait for each other there, so nothing is said of them.
    """
    step, work = facts.step, facts.step.gpu_work
    if work is None or facts.comm is not None:
        return None
    idle_s = sum(step.stages.get(name, 0.0) for name in _LAUNCHING) - work.busy_s
    if idle_s < _MIN_SHARE * step.mean_s:
        return None
    part, each = idle_s / step.mean_s, (work.kernel_s, idle_s / max(work.kernels, 1))
    return Finding(
        RULE_ID,
        Severity.of(part),
        message=f"the GPU is idle for at least {seconds(idle_s)} ({share(part)}) of the "
        f"{seconds(step.mean_s)} step while the host runs "
        f"Python, operators or kernel launches: a step launches "
        f"{counted(round(work.kernels), 'kernel')} ({seconds(work.kernel_s)} each on "
        f"average), and the GPU is busy for only {seconds(work.busy_s)} (kernels and copies, "
        f"without the gaps between them)",
        evidence=[
            Evidence(
                "gpu_idle_s",
                "GPU idle while the host computes and launches, per step, at least",
                idle_s,
                "s",
            ),
            Evidence("gpu_idle_share", "share of the step, at least", part, SHARE),
            Evidence("gpu_busy_s", "GPU busy, per step", work.busy_s, "s"),
            Evidence("kernels", "kernels per step", work.kernels, ""),
            Evidence("mean_kernel_s", "mean kernel duration", work.kernel_s, "s"),
            Evidence("profiled_steps", "steps recorded by torch.profiler", work.steps, ""),
        ],
        fix=f"{launches.fix(*each, bool(step.stages.get('compile')))}. Avoid loss.item() and "
        f"other waits for the GPU in each step: they "
        "keep the host from launching ahead.",
        how_to_check=launches.how_to_check(*each),
        cost_s=idle_s,
    )


RULE: Rule[RuleInputs] = Rule(
    RULE_ID,
    check,
    launches.change,
    claims=("forward", "backward", "optimizer", "other"),
    bound="Host-bound",
    lifts=frozenset({"step"}),
    supposing="if the GPU never waited",
)
