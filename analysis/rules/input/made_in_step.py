"""A function of the program makes each batch in the training's own thread, while the model waits."""

from feedline.analysis.formatting import seconds
from feedline.analysis.ledger.change import Refused
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import SHARE, Evidence, Finding, Severity
from feedline.analysis.ledger.rule import Rule
from feedline.analysis.ledger.view import cpus
from feedline.analysis.ledger.view.batch_function import HOW_TO_CHECK, _does, _waits, who
from feedline.analysis.ledger.view.handover import receiving_s
from feedline.analysis.ledger.view.input_wait import MIN_WAIT_SHARE
from feedline.analysis.ledger.view.loop_code import batch_maker
from feedline.analysis.ledger.view.own_functions import place_of

RULE_ID = "made_in_step"

_ALL = 0.995  # of a share that says nothing as an upper bound


def check(facts: RuleInputs) -> Finding | None:
    """Name the function, and say how the next batch can be made while the model computes."""
    took = facts.step.stages.get("input", 0.0)
    weight = Severity.of(took / facts.step.mean_s) if facts.step.mean_s > 0 else Severity.INFO
    if weight is Severity.INFO:
        return None
    place, known = batch_maker(facts) or ("", None)
    says, fix = f"{who(facts)} {_does(facts)} in the main thread ({seconds(took)} per step)", ""
    if known is not None:
        says, fix = f"{says}. {known.call.says}", f"{known.call.fix}. Or: "
    return Finding(
        RULE_ID,
        weight,
        message=says,
        evidence=_evidence(facts, took),
        fix=fix + _fix(facts, took),
        how_to_check=HOW_TO_CHECK,
        cost_s=took,
        place=place or place_of(facts.making.functions[0] if facts.making else ""),
    )


def _evidence(facts: RuleInputs, took: float) -> list[Evidence]:
    found = [
        Evidence("making_s", "making batches per step", took, "s"),
        Evidence("other_s", "other per step", facts.step.stages.get("other", 0.0), "s"),
    ]
    if facts.certainty is not None and facts.certainty.steps > 1:
        ends, what = (
            (("lower", facts.certainty.low), ("upper", facts.certainty.high)),
            "share of the step, {} end of its 95 % interval",
        )
        found += [
            Evidence("input_share_end", what.format(end), value, SHARE, end) for end, value in ends
        ]
    if not _waits(facts) and not _full(facts, took):
        found += [
            Evidence(
                "receiving_s",
                "receiving batches from a worker per step, upper estimate",
                _receiving_s(facts),
                "s",
            )
        ]
    if facts.making is not None:
        found += [
            Evidence(
                "timed_steps",
                "steps in which the function was timed",
                float(facts.making.looked.sum()),
                "steps",
            )
        ]
        found += [Evidence("calls", "calls per step", facts.making.calls, "1")]
        if facts.making.working_share < _ALL:
            what = "computing or waiting for a CPU, share of the function's time, at most"
            found.append(Evidence("cpu_share", what, facts.making.working_share, SHARE))
    return found


def _fix(facts: RuleInputs, took: float) -> str:
    if _waits(facts):
        return (
            "Request the next batch before calling the model on this one, and see what the "
            "function waits for: a queue, a file, a lock."
        )
    fewer = "Make each batch with fewer calls (one indexing operation for all of its samples)"
    device = (
        " Copy batches from pinned memory with non_blocking=True."
        if facts.step.stages.get("copy")
        else ""
    )
    if _full(facts, took):
        return (
            f"{fewer}.{device} A thread would not help, because the CPUs are busy: "
            f"{cpus.use(facts)}."
        )
    receiving = _receiving_s(facts)
    worker = (
        f", or in a DataLoader with num_workers=1 (receiving its batches takes about "
        f"{seconds(receiving)} per step)"
    )
    helps = took - receiving >= MIN_WAIT_SHARE * facts.step.mean_s
    thread = (
        "make the next one while the model computes: in a ThreadPoolExecutor(max_workers=1) "
        "with a random generator of its own"
    )
    return f"{fewer}, or {thread}{worker if helps else ''}.{device}"


def _receiving_s(facts: RuleInputs) -> float:
    return receiving_s(facts).times(facts.making.calls if facts.making else 1.0).high


def _full(facts: RuleInputs, took: float) -> bool:
    """Whether no CPU is free on which another thread could make the batch meanwhile."""
    free = facts.cpus.free if facts.cpus is not None else None
    return free is not None and free * facts.step.mean_s < took


def change(facts: RuleInputs) -> Refused:
    """Nothing is predicted: there is no loader to replay."""
    return Refused(
        "no_loader",
        "Only a DataLoader can be replayed, and this program makes its own batches.",
    )


RULE: Rule[RuleInputs] = Rule(RULE_ID, check, change, claims=("input",), of_input=True)
