"""The GPU is idle while the host runs the model, the backward pass and the optimizer.

The host launches its work too slowly.
"""

from feedline.analysis.ledger.calls_per_step import PER_STEP
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import SHARE, Evidence, Finding, Severity
from feedline.analysis.ledger.known_call import known_call
from feedline.analysis.ledger.rule import Rule
from feedline.analysis.ledger.view import launches
from feedline.analysis.ledger.view.slow_code import enough
from feedline.analysis.measure.code_places import LOGGING, OTHER
from feedline.analysis.measure.code_tree import MAIN
from feedline.analysis.measure.stages import STAGES
from feedline.analysis.text.formatting import counted
from feedline.analysis.text.sentences import NAME, PART, PERCENT, TIME, Sentence

_RULE_ID = "gpu_waits"

_SAYS = Sentence(
    "the GPU is idle for at least {idle} ({part}) of each step while the host launches its work",
    idle=TIME,
    part=PERCENT,
)
_HOST = "the host runs Python, operators or kernel launches meanwhile"
_LAUNCHES = Sentence(
    "a step launches {kernels}, which take {each} each on average", kernels=PART, each=TIME
)
_BUSY = Sentence(
    "the GPU is busy for only {busy} per step: kernels and copies, without the gaps between them",
    busy=TIME,
)
_AT = Sentence("{place} waits for the GPU, which keeps the host from launching ahead.", place=NAME)
_PERHAPS = "Does anything in a step wait for the GPU, such as loss.item()?"
_THEN = "The host cannot launch ahead then."

#: Of the step. Less may come from steps that differ from the few that were profiled.
_MIN_SHARE = 0.20
#: In these, all that the host has to do is launch the GPU's work, or wait for it.
_LAUNCHING = tuple(spec.name for spec in STAGES if spec.family == "compute" or spec.name == "copy")
#: Calls that wait for the GPU.
_WAITS = tuple(call for call in PER_STEP if call.name in ("read_back", "synchronized"))


def _check(facts: RuleInputs) -> Finding | None:
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
        _RULE_ID,
        Severity.of(part),
        message=_SAYS(idle=idle_s, part=part),
        more=[
            _HOST,
            _LAUNCHES(kernels=counted(round(work.kernels), "kernel"), each=work.kernel_s),
            _BUSY(busy=work.busy_s),
        ],
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
        fix=launches.fix(*each, facts.compiled, facts.updated),
        fix_more=_waits(facts),
        how_to_check=launches.how_to_check(*each),
        cost_s=idle_s,
    )


def _waits(facts: RuleInputs) -> list[str]:
    """Return which line of the program waits for the GPU; where none is seen to, ask for one."""
    code = facts.code
    for place in (*_LAUNCHING, OTHER, LOGGING):
        tree = code.places.get((MAIN, place)) if code is not None else None
        if code is None or tree is None:
            continue
        found = known_call(tree.inside, _WAITS, code.source, most=0.0)
        if found is not None and enough(found.seconds, tree.weight):
            return [_AT(place=f"{found.file}:{found.line}"), f"{found.call.fix}."]
    return [_PERHAPS, _THEN]


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    launches.change,
    claims=("forward", "backward", "optimizer", "other"),
    bound="Host-bound",
    lifts=frozenset({"step"}),
    supposing="if the GPU never waited",
    action="launch fewer kernels",
)
