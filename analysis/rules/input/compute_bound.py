"""Nothing to find at the input: the step itself takes the time."""

from feedline.analysis.formatting import seconds, share
from feedline.analysis.ledger.change import NOTHING_TO_CHANGE, Refused
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import SHARE, Evidence, Finding, Severity
from feedline.analysis.ledger.rule import EVERY_LIMIT, Rule, Statement
from feedline.analysis.ledger.view.batch_function import who
from feedline.analysis.ledger.view.enough_steps import input_known, unsure
from feedline.analysis.ledger.view.input_wait import MIN_WAIT_SHARE, input_wait, steady_share
from feedline.analysis.measure.stages import INPUT_STAGES

RULE_ID = "compute_bound"


def check(facts: RuleInputs) -> Finding | None:
    """Say so where the input takes less of the step than the gate."""
    waiting = steady_share(facts)
    if not input_known(facts) or waiting >= MIN_WAIT_SHARE:
        return None
    start_s = input_wait(facts).start_s
    starts = start_s >= MIN_WAIT_SHARE * facts.step.mean_s
    by = f" ({who(facts)})" if facts.loader is None else ""
    once = (
        f"apart from starting the loader once ({seconds(start_s)} per step so far), "
        if starts
        else ""
    )
    faster = f"faster by much more than {seconds(start_s)}" if starts else "much faster"
    evidence = [Evidence("input_share", "input, share of the step", waiting, SHARE)]
    if start_s > 0:
        evidence.append(
            Evidence("epoch_start_s", "starting the loader, per step so far", start_s, "s")
        )
    return Finding(
        RULE_ID,
        Severity.INFO,
        message=f"the input{by} is not the bottleneck: {once}it takes "
        f"{share(waiting)}{unsure(facts)} of the "
        f"{seconds(facts.step.mean_s)} step{_largest(facts)}",
        evidence=evidence + _stages(facts),
        fix=f"No change to the input is needed: it takes only {share(waiting)} of the step.",
        how_to_check=f"Train on the same batch in every step. If the step gets {faster}, this "
        f"finding is wrong.",
    )


def without_a_loader(facts: RuleInputs) -> Finding | None:
    """Say so where neither a loader nor a function was seen, but the input can take little.

    Models need no new data, or next to nothing of the step can be input.
    """
    unseen, step, most = facts.unseen, seconds(facts.step.mean_s), facts.unseen_at_most
    if unseen is None or most is None or (unseen.high >= MIN_WAIT_SHARE and not unseen.resident):
        return None
    if unseen.resident:
        message = (
            "no batch has to be loaded: the model gets the same tensors, or slices of them, "
            "in every step"
        )
        how_to_check = (
            "Check whether the loop, or the model's forward(), loads other data for each step, "
            "such as targets for the loss. "
            "If it does, that is input, and this finding is wrong."
        )
        evidence = []
    else:
        message = (
            f"the input is not the bottleneck: only {share(most)} of the {step} step can be input"
        )
        how_to_check = (
            "Check whether the model's forward() loads or makes data. If it does, that "
            "was counted as forward, and this finding is wrong."
        )
        ends = (
            (unseen.share, "unseen_share", ""),
            (unseen.high, "unseen_share_end", ", upper end of its 95 % interval"),
        )
        evidence = [
            Evidence(name, f"share of the step that may be input{end}", value, SHARE)
            for value, name, end in ends
        ]
    return Finding(
        RULE_ID,
        Severity.INFO,
        message=f"{message}{_largest(facts)}",
        evidence=evidence + _stages(facts),
        fix="No change to the input is needed.",
        how_to_check=how_to_check,
    )


def _work(facts: RuleInputs) -> list[tuple[float, str]]:
    return sorted(
        ((s, name) for name, s in facts.step.stages.items() if name not in INPUT_STAGES),
        reverse=True,
    )


def _largest(facts: RuleInputs) -> str:
    """Return what takes the step instead.

    Stages are the host's time, which says little where it only launches work.
    """
    gpu, step_s = facts.step.gpu_work, facts.step.mean_s
    if gpu is not None and gpu.busy_s > step_s:
        pin_s = facts.step.stages.get("pin", 0.0)
        # The CUDA C++ programming guide lists the allocation of page-locked memory under implicit
        # synchronization.
        pins = (
            f". pin takes {seconds(pin_s)}: copying the batch, or waiting for the GPU until "
            f"pinned memory can be allocated"
        )
        more = pins if pin_s >= MIN_WAIT_SHARE * step_s else ""
        return (
            f"; the GPU needs {seconds(gpu.busy_s)} per step, more than the host takes to "
            f"launch its work{more}"
        )
    if gpu is not None:
        return f"; the GPU is busy for {seconds(gpu.busy_s)} of it ({share(gpu.busy_s / step_s)})"
    work = _work(facts)
    if not work:
        return ""
    closure = (
        " with the code of its closure" if work[0][1] == "optimizer" and facts.closures else ""
    )
    return f"; the largest stage is {work[0][1]}{closure} ({seconds(work[0][0])})"


def _stages(facts: RuleInputs) -> list[Evidence]:
    gpu = facts.step.gpu_work
    if gpu is not None:
        return [Evidence("gpu_busy_s", "GPU busy, per step", gpu.busy_s, "s")]
    return [Evidence("stage_s", f"{name} per step", s, "s", name) for s, name in _work(facts)[:3]]


def change(facts: RuleInputs) -> Refused:
    """Return why nothing is predicted: there is nothing to fix."""
    return NOTHING_TO_CHANGE


RULE: Rule[RuleInputs] = Rule(
    RULE_ID,
    check,
    change,
    lifts=EVERY_LIMIT,
    of_input=True,
    states=Statement.NOT_HELD,
)
