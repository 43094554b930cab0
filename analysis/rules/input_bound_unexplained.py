"""The run waits for its input and no rule says why. Better said than hidden."""

from feedline.analysis.facts import Facts
from feedline.analysis.finding import SHARE, Evidence, Finding, Severity, measured
from feedline.analysis.quantities import seconds, share
from feedline.analysis.rules import cpus
from feedline.analysis.rules.held import held, making_share, steady_share
from feedline.analysis.rules.too_short import unsure
from feedline.analysis.stages import MAKING_STAGES

CAUSE = "input_bound_unexplained"
#: Parts of what the step waits for (held.py) -> in words.
PARTS = {
    "making_s": "making batches",
    "restart_s": "the start of later epochs",
    "handover_s": "workers that hand over their batches late",
    "transport_s": "transport",
    "sampler_s": "the sampler",
}
BY_WHOM = "look with top for other programs that hold the CPUs, and let the training run longer, so that feedline can sample who uses them"


def check(facts: Facts) -> Finding:
    """Name the largest part of the wait and of a sample, where to look first."""
    waiting = steady_share(facts)
    part, part_s = _largest(facts)
    name = PARTS[part]
    stage = max(MAKING_STAGES, key=lambda stage: making_share(facts, stage))
    of_sample = making_share(facts, stage)
    inside = f", and the largest part of a sample is {stage} ({share(of_sample)})" if of_sample and part == "making_s" else ""
    queues = _queues(facts)
    if queues:
        inside = f", and {queues}; which programs had the CPUs was not sampled"
    shares = [
        ("blocked_share", "blocked share of a sample's time", cpus.blocked_share(facts), SHARE),
        ("waiting_for_cpu_share", "share of a sample's time waiting for a CPU", cpus.runqueue_share(facts), SHARE),
        ("main_thread_waiting_for_cpu_share", "share of the step that the main thread waited for a CPU", facts.main_runqueue_share, SHARE),
    ]
    return Finding(
        CAUSE,
        Severity.of(waiting),
        says=f"the step waits for its input {share(waiting)}{unsure(facts)} of the time, and no rule explains why: the "
        f"largest part is {name} ({seconds(part_s)} per step){inside}",
        evidence=[
            Evidence("input_share", "share of the step waiting for input", waiting, SHARE),
            Evidence(part, f"{name} per step", part_s, "s"),
            *measured(shares),
        ],
        fix=BY_WHOM
        if queues
        else "look at the stages of a sample in the report, and name your own parts with feedline.stage(...) to split them",
        disproof="the step is no faster when every step uses the same batch",
        cost_s=waiting * facts.step.mean_s,
    )


def _queues(facts: Facts) -> str:
    """What waits for a CPU, in words, where it is not known who has it; else nothing."""
    if facts.cpus is not None and facts.cpus.others is not None:
        return ""
    of_sample, of_step = cpus.runqueue_share(facts) or 0.0, facts.main_runqueue_share or 0.0
    if of_sample > cpus.MAX_RUNQUEUE_SHARE:
        return f"a sample waits for a CPU {share(of_sample)} of its time"
    return f"the main thread waits for a CPU {share(of_step)} of the step" if of_step > cpus.MAX_RUNQUEUE_SHARE else ""


def _largest(facts: Facts) -> tuple[str, float]:
    """Of ``PARTS``, and its seconds of the mean step."""
    parts = held(facts)
    return max(((name, float(getattr(parts, name))) for name in PARTS), key=lambda pair: pair[1])
