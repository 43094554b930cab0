"""Nothing to find at the input: the step itself takes the time."""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import (
    NOTHING_TO_CHANGE,
    SHARE,
    Evidence,
    Finding,
    Refused,
    Severity,
)
from feedline.analysis.ledger.rule import EVERY_LIMIT, Rule, Statement
from feedline.analysis.ledger.view.enough_steps import HIGH_SHARE, INTERVAL, input_known
from feedline.analysis.ledger.view.input_wait import MIN_WAIT_SHARE, input_wait, steady_share
from feedline.analysis.ledger.view.loop_code import makes
from feedline.analysis.ledger.view.own_functions import HotLine, hottest_line
from feedline.analysis.measure.model import Certainty
from feedline.analysis.measure.stages import INPUT_STAGES
from feedline.analysis.text.formatting import percent, seconds
from feedline.analysis.text.sentences import NAME, PART, PERCENT, TIME, Sentence

_RULE_ID = "compute_bound"

_SAYS = Sentence(
    "not input-bound: {what} takes {part} of each step, the input {of_input}, so the input needs no "
    "change",
    what=NAME,
    part=PERCENT,
    of_input=PART,
)
_SAYS_WHERE = Sentence(
    "not input-bound: the input takes {of_input} of each step, and {part} is spent {where}",
    of_input=PART,
    part=PERCENT,
    where=NAME,
)
_ONLY_INPUT = Sentence("not input-bound: the input takes {of_input} of each step", of_input=PART)
_LAUNCHES = Sentence(
    "not input-bound: the GPU needs {busy} for each step, and the input takes {of_input}",
    busy=TIME,
    of_input=PART,
)
_STARTED = Sentence("starting the loader once takes {start} per step so far", start=TIME)
_SAME_TENSORS = "the model gets the same tensors, or slices of them, in every step"
_RESIDENT = f"no batch has to be loaded: {_SAME_TENSORS}"
_RESIDENT_WHERE = Sentence(
    "no batch has to be loaded, and {part} of each step is spent {where}", part=PERCENT, where=NAME
)
_PINS = Sentence(
    "pin takes {pin}: copying the batch, or waiting for the GPU until pinned memory can be "
    "allocated",
    pin=TIME,
)


def check(facts: RuleInputs) -> Finding | None:
    """Say so where the input takes less of the step than the gate."""
    waiting = steady_share(facts)
    if not input_known(facts) or waiting >= MIN_WAIT_SHARE:
        return None
    start_s = input_wait(facts).start_s
    starts = start_s >= MIN_WAIT_SHARE * facts.step.mean_s
    faster = f"faster by much more than {seconds(start_s)}" if starts else "much faster"
    evidence = [Evidence("input_share", "input, share of the step", waiting, SHARE)]
    if start_s > 0:
        evidence.append(
            Evidence("epoch_start_s", "starting the loader, per step so far", start_s, "s")
        )
    line = hottest_line(facts)
    return Finding(
        _RULE_ID,
        Severity.INFO,
        message=_says(facts, percent(waiting), line),
        more=[
            *_pins(facts),
            *([] if facts.loader else makes(facts)),
            *([_STARTED(start=start_s)] if starts else []),
            *_interval(facts),
        ],
        evidence=evidence + _where(facts, line),
        how_to_check=f"Train on the same batch in every step. If the step gets {faster}, this "
        f"finding is wrong.",
    )


def without_a_loader(facts: RuleInputs) -> Finding | None:
    """Say so where neither a loader nor a function was seen, but the input can take little.

    Models need no new data, or next to nothing of the step can be input.
    """
    unseen, most = facts.unseen, facts.unseen_at_most
    if unseen is None or most is None or (unseen.high >= MIN_WAIT_SHARE and not unseen.resident):
        return None
    line = hottest_line(facts)
    if unseen.resident:
        message, more = _says_resident(line)
        how_to_check = (
            "Check whether the loop, or the model's forward(), loads other data for each step, "
            "such as targets for the loss. "
            "If it does, that is input, and this finding is wrong."
        )
        evidence = []
    else:
        message, more = _says(facts, f"at most {percent(most)}", line), []
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
        _RULE_ID,
        Severity.INFO,
        message=message,
        more=more,
        evidence=evidence + _where(facts, line),
        how_to_check=how_to_check,
    )


def _work(facts: RuleInputs) -> list[tuple[float, str]]:
    return sorted(
        ((s, name) for name, s in facts.step.stages.items() if name not in INPUT_STAGES),
        reverse=True,
    )


def _says(facts: RuleInputs, of_input: str, line: HotLine | None) -> str:
    """Return what takes the step instead of the input: a line of the program, if one is known.

    Stages are the host's time, which says little where it only launches work.
    """
    if line is not None:
        return _SAYS_WHERE(part=line.share, where=line.where, of_input=of_input)
    gpu, step_s = facts.step.gpu_work, facts.step.mean_s
    if gpu is not None and gpu.busy_s > step_s:
        return _LAUNCHES(busy=gpu.busy_s, of_input=of_input)
    if gpu is not None:
        return _SAYS(what="the GPU's work", part=gpu.busy_s / step_s, of_input=of_input)
    work = _work(facts)
    if not work:
        return _ONLY_INPUT(of_input=of_input)
    took, stage = work[0]
    closure = " with its closure" if stage == "optimizer" and facts.closures else ""
    return _SAYS(what=f"{stage}{closure}", part=took / step_s, of_input=of_input)


def _says_resident(line: HotLine | None) -> tuple[str, list[str]]:
    """Return that no batch has to be loaded, and further sentences."""
    if line is None:
        return _RESIDENT, []
    return _RESIDENT_WHERE(part=line.share, where=line.where), [_SAME_TENSORS]


def _pins(facts: RuleInputs) -> list[str]:
    """Say what pinning is, where it takes much of a step that the GPU fills.

    The CUDA C++ programming guide lists the allocation of page-locked memory under implicit
    synchronization.
    """
    gpu, step_s = facts.step.gpu_work, facts.step.mean_s
    pin_s = facts.step.stages.get("pin", 0.0)
    large = gpu is not None and gpu.busy_s > step_s and pin_s >= MIN_WAIT_SHARE * step_s
    return [_PINS(pin=pin_s)] if large else []


def _where(facts: RuleInputs, line: HotLine | None) -> list[Evidence]:
    """Return what takes the step: its stages, and a line of the program."""
    return _stages(facts) + (line.evidence if line is not None else [])


def _stages(facts: RuleInputs) -> list[Evidence]:
    gpu = facts.step.gpu_work
    if gpu is not None:
        return [Evidence("gpu_busy_s", "GPU busy, per step", gpu.busy_s, "s")]
    return [Evidence("stage_s", f"{name} per step", s, "s", name) for s, name in _work(facts)[:3]]


def _change(facts: RuleInputs) -> Refused:
    """Return why nothing is predicted: there is nothing to fix."""
    return NOTHING_TO_CHANGE


def _interval(facts: RuleInputs) -> list[str]:
    """Return the interval of the input's share as a sentence, where it is wide; else nothing."""
    sure = facts.certainty
    return [] if sure is None or not _wide(sure) else [INTERVAL(ends=(sure.low, sure.high))]


def _wide(sure: Certainty) -> bool:
    across = sure.low < MIN_WAIT_SHARE <= sure.high
    return across or sure.high - sure.low > HIGH_SHARE - MIN_WAIT_SHARE


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    check,
    _change,
    lifts=EVERY_LIMIT,
    of_input=True,
    states=Statement.NOT_HELD,
)
